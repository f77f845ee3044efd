"""Reads Triton's words, taken from servers 2.51 and 2.71."""

from __future__ import annotations

import pytest

from kubectl_triton.trial.messages import Kind, place, read
from support.growth import assert_linear

FAILED = "Failed to process the request(s) for model 'm_0_0', message: "


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        (f"{FAILED}ValueError: bad\n\nAt:\n  /models/m/1/model.py(7): execute\n", Kind.EXCEPTION, "ValueError: bad"),
        (f"in ensemble 'e', {FAILED}ValueError: bad\n\nAt:\n  /models/m/1/model.py(7): execute\n", Kind.EXCEPTION,
         "ValueError: bad"),
        (f"{FAILED}NameError: name 'x' is not defined\n\nAt:\n  /models/m/1/model.py(7): execute\n", Kind.PROGRAM,
         "NameError: name 'x' is not defined"),
        (f"{FAILED}AttributeError: 'c_python_backend_utils.InferenceRequest' object has no attribute 'get_input'"
         "\n\nAt:\n  /models/m/1/model.py(7): execute\n", Kind.PROGRAM, "AttributeError: "),
        (f"{FAILED}AttributeError: 'NoneType' object has no attribute 'shape'\n\nAt:\n  /models/m/1/model.py(7): f\n",
         Kind.EXCEPTION, "AttributeError: "),
        (f"{FAILED}TypeError: __init__(): incompatible constructor arguments. The following argument types are "
         "supported:\n    1. Tensor(arg0: str, arg1: numpy.ndarray)\n\nAt:\n  /models/m/1/model.py(7): f\n",
         Kind.PROGRAM, "TypeError: __init__(): incompatible"),
        (f"{FAILED}TritonModelException: not such a picture\n\nAt:\n  /models/m/1/model.py(7): execute\n", Kind.REFUSED,
         "TritonModelException: not such a picture"),
        ("the picture can't be read", Kind.REFUSED, "the picture can't be read"),
        ("in ensemble 'e', the picture can't be read", Kind.REFUSED, "the picture can't be read"),
        ("ValueError: the model's own words", Kind.REFUSED, "ValueError: the model's own words"),
        ("Stub process 'm_0_0' is not healthy.", Kind.DEAD, "Stub process"),
        ("Request timeout expired", Kind.QUEUE, "Request timeout expired"),
        ("Number of InferenceResponse objects do not match the number of InferenceRequest objects. InferenceRequest(s) "
         "size is:1, and InferenceResponse(s) size is:2\n", Kind.SERVER, "Number of InferenceResponse"),
        ("[request id: <id_unknown>] unexpected shape for input 'X' for model 'm'. Expected [-1,4], got [1,3].",
         Kind.SERVER, "unexpected shape for input 'X'"),
        ("[request id: 1] expected 2 inputs but got 1 inputs for model 'm'", Kind.SERVER, "expected 2 inputs"),
        ("onnx runtime error 2: not implemented", Kind.SERVER, "onnx runtime error 2"),
        ("", Kind.REFUSED, "no words"),
    ],
)  # fmt: skip
def test_tells_a_program_from_a_server(message, kind, words):
    fault = read(message, ["m"])
    assert fault.kind is kind
    assert fault.words.startswith(words)


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        # pybind11 prints the innermost frame first.
        ("  /models/m/1/helper.py(3): read\n  /models/m/1/model.py(7): execute\n", ("m/1/helper.py", 3)),
        ("  /usr/lib/python3/json/decoder.py(3): read\n  /models/m/1/model.py(7): execute\n", ("m/1/model.py", 7)),
        ("  /.triton-operator/repository/m/1/model.py(7): execute\n", ("m/1/model.py", 7)),
        ('Traceback (most recent call last):\n  File "/models/m/1/model.py", line 7, in f\n    x\n  File "/models/m/1/'
         'helper.py", line 3, in g\n', ("m/1/helper.py", 3)),
        # Another repository, or none.
        ("  /models/other/1/model.py(7): execute\n", ("", None)),
        ("  <string>(7): execute\n", ("", None)),
        ("", ("", None)),
    ],
)  # fmt: skip
def test_finds_the_line_of_the_repository(trace, expected):
    assert place(f"ValueError: x\n\nAt:\n{trace}", ["m"]) == expected


@pytest.mark.parametrize(
    "part", ["in ensemble '", "Stub process ", "[request id: ", "TypeError: argument ", "\n ", "  /"]
)
def test_a_message_of_twice_the_length_takes_twice_the_time(part):
    def bounded(message):
        assert len(read(message, ["m"]).words) <= 500

    assert_linear(lambda size: part * size, bounded, 50_000)
