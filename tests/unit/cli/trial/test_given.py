"""Requests from a user's files: perf_analyzer's format, with the examples of its manual, and health requests."""

from __future__ import annotations

import base64
import json
import struct

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from kubectl_triton.trial.given import MAX_REQUESTS, GivenError, from_file, health_request, inputs_of
from kubectl_triton.trial.requests import Turn


def config(text: str):
    return text_format.Parse(text, model_config_pb2.ModelConfig())


TWO = config(
    'input [{name: "INPUT0", data_type: TYPE_INT32, dims: [16]}, {name: "INPUT1", data_type: TYPE_INT32, dims: [4, 4]}]'
    " max_batch_size: 8"
)
FREE = config('input [{name: "INPUT0", data_type: TYPE_INT32, dims: [-1]}]')
IMAGE = config('input [{name: "IMAGE", data_type: TYPE_STRING, dims: [1]}] max_batch_size: 4')


def file(*entries: object) -> bytes:
    return json.dumps({"data": entries}).encode()


def test_lists_get_the_shape_of_the_configuration():
    steps = [{"INPUT0": [1] * 16, "INPUT1": [2] * 16}, {"INPUT0": [3] * 16, "INPUT1": [[4] * 4] * 4}]
    requests = list(from_file(TWO, file(*steps), "in.json"))
    assert [[tensor.values.shape for tensor in request.inputs] for request in requests] == [[(1, 16), (1, 4, 4)]] * 2
    assert [request.words for request in requests] == [
        "the values of in.json, entry 1",
        "the values of in.json, entry 2",
    ]
    assert all(request.real and request.batch == 1 and request.turn is None for request in requests)


def test_a_shape_can_be_given_and_a_variable_one_follows():
    given, guessed = from_file(FREE, file({"INPUT0": {"content": [1, 2, 3], "shape": [3]}}, {"INPUT0": [1, 2]}), "f")
    assert (given.inputs[0].values.tolist(), guessed.inputs[0].values.tolist()) == ([1, 2, 3], [1, 2])


def test_base64_is_the_raw_content():
    numbers = base64.b64encode(struct.pack("<2i", 7, 8)).decode()
    (request,) = from_file(FREE, file({"INPUT0": {"b64": numbers}}), "f")
    assert request.inputs[0].values.tolist() == [7, 8]
    text = base64.b64encode(struct.pack("<I", 3) + b"\xff\xd8\xff").decode()
    (request,) = from_file(IMAGE, file({"IMAGE": {"content": {"b64": text}, "shape": [1]}}), "f")
    assert request.inputs[0].values.tolist() == [[b"\xff\xd8\xff"]]


def test_lists_of_steps_are_sequences():
    model = config('input [{name: "INPUT", data_type: TYPE_INT32, dims: [1]}] sequence_batching {}')
    content = file([{"INPUT": [1]}, {"INPUT": [2]}, {"INPUT": [3]}], [{"INPUT": [4]}])
    assert [request.turn for request in from_file(model, content, "f")] == [
        Turn(1, True, False), Turn(1, False, False), Turn(1, False, True), Turn(2, True, True),
    ]  # fmt: skip


def test_of_a_long_file_only_the_first_requests_are_sent():
    assert len(list(from_file(FREE, file(*[{"INPUT0": [1]}] * 500), "f"))) == MAX_REQUESTS


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "not perf_analyzer's JSON format"),
        (b"[]", "not perf_analyzer's JSON format"),
        (file(), "not perf_analyzer's JSON format"),
        (file("a"), "not perf_analyzer's JSON format"),
        (file({"OTHER": [1]}), "entry 1: the model has no input OTHER"),
        (file({"INPUT0": ["a"]}), "entry 1: INPUT0: invalid literal"),
        (file({"INPUT0": {"b64": "#"}}), "entry 1: INPUT0: "),
        (file({"INPUT0": {"content": [1], "shape": [2]}}), "entry 1: INPUT0: cannot reshape"),
        (file([{"INPUT0": [1]}, {"INPUT0": [2**40]}]), "entry 1.2: INPUT0: "),
    ],
)
def test_says_what_is_wrong_with_a_file(content, words):
    with pytest.raises(GivenError) as error:
        list(from_file(FREE, content, "f"))
    assert words in str(error.value)


def test_names_the_inputs_of_a_file():
    assert inputs_of(file({"A": [1]}, [{"A": [1], "B": [2]}])) == {"A", "B"}


def test_a_health_request_is_a_body_or_the_file_itself():
    body = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [2, 16], "data": [[1] * 16, [2] * 16]}]}
    request = health_request(TWO, "m/health.json", b"\xef\xbb\xbf" + json.dumps(body).encode())
    assert (request.inputs[0].values.shape, request.batch, request.real) == ((2, 16), 2, True)
    picture = health_request(IMAGE, "m/picture.jpg", b"\xff\xd8")
    assert picture.inputs[0].values.tolist() == [[b"\xff\xd8"]]


@pytest.mark.parametrize(
    ("model", "name", "content", "words"),
    [
        (TWO, "m/x.bin", b"", "the model has 2 inputs"),
        (FREE, "m/x.bin", b"123", "buffer size"),
        (TWO, "m/health.json", b"{", "Expecting"),
        (TWO, "m/health.json", b"{}", "'inputs' is missing"),
    ],
)
def test_says_what_is_wrong_with_a_health_request(model, name, content, words):
    with pytest.raises(GivenError, match=words):
        health_request(model, name, content)
