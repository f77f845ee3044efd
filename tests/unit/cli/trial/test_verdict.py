"""What came of requests, and which findings follow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from kubectl_triton.trial.outcome import Outcome, Output, Target
from kubectl_triton.trial.requests import Request
from kubectl_triton.trial.tensors import Tensor
from kubectl_triton.trial.verdict import Sent, Step, distinct, judge
from triton_repository_check.findings import Severity

INPUT = 'input [{name: "X", data_type: TYPE_FP32, dims: [2]}] '
OUTPUT = 'output [{name: "Y", data_type: TYPE_FP32, dims: [-1, 2]}] '
NUMBERS = INPUT + OUTPUT
TEXTS = NUMBERS.replace("FP32, dims: [2]", "STRING, dims: [1]")
RAISES = "Failed to process the request(s) for model 'm_0_0', message: {}\n\nAt:\n  /models/m/1/model.py(7): execute\n"
VALUE = RAISES.format("ValueError: bad value")
NAME = RAISES.format("NameError: name 'x' is not defined")
OWN = "the picture can't be read"
ONNX = "onnx runtime error 2: not implemented"
REQUEST = Request((Tensor("X", "FP32", np.zeros(2, np.float32)),), "zeros")
GOOD = Outcome(((Output("Y", "FP32", (3, 2)),),))


def config(text: str):
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def sent(outcome: Outcome | str, step: Step = Step.VALUES, *, real: bool = False, words: str = "") -> Sent:
    return Sent(
        replace(REQUEST, real=real), Outcome(error=outcome) if isinstance(outcome, str) else outcome, step, words
    )


def found(text: str, *all_sent: Sent, streams: bool = False) -> list[tuple[str, Severity]]:
    judged = judge(Target("m", streams=streams), config(text), all_sent, ["m"])
    return [(one.finding.code, one.finding.severity) for one in judged]


ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE


@pytest.mark.parametrize(
    ("text", "all_sent", "expected"),
    [
        # Numbers of a fixed shape: the model must take them.
        (NUMBERS, [sent(VALUE)], [("TR904", ERROR)]),
        (NUMBERS, [sent(ONNX)], [("TR904", ERROR)]),
        # Values that were made up: an exception for some may be the values' fault.
        (NUMBERS, [sent(GOOD), sent(VALUE)], [("TR904", WARNING)]),
        (TEXTS, [sent(VALUE), sent(VALUE)], [("TR904", WARNING)]),
        # A wrong name is the program's fault, whatever the values are.
        (TEXTS, [sent(GOOD), sent(NAME)], [("TR904", ERROR)]),
        # A user's values are no excuse, nor are values that were answered before.
        (TEXTS, [sent(GOOD), sent(VALUE, real=True)], [("TR904", ERROR)]),
        (TEXTS, [sent(GOOD), sent(VALUE, Step.FORM)], [("TR904", ERROR)]),
        (TEXTS, [sent(GOOD), sent(VALUE, Step.AGAIN)], [("TR904", ERROR)]),
        (TEXTS, [sent(VALUE, Step.OPTIONAL), sent(GOOD, Step.OPTIONAL)], [("TR904", WARNING)]),
        # A model may refuse values by an error of its own.
        (TEXTS, [sent(GOOD), sent(OWN)], [("TR908", NOTE)]),
        (TEXTS, [sent(OWN), sent(OWN)], [("TR908", WARNING)]),
        (NUMBERS, [sent(OWN), sent(OWN)], [("TR908", ERROR)]),
        (TEXTS, [sent(GOOD), sent(OWN, Step.FORM)], [("TR908", WARNING)]),
        (TEXTS, [sent(GOOD), sent(OWN, Step.AGAIN)], [("TR908", ERROR)]),
        (TEXTS, [sent(GOOD), sent(OWN, real=True)], [("TR908", ERROR)]),
        (NUMBERS, [sent(GOOD), sent(Outcome(is_late=True, seconds=20))], [("TR906", ERROR)]),
        (NUMBERS, [sent("Stub process 'm_0_0' is not healthy.")], [("TR907", ERROR)]),
        # As configured.
        (NUMBERS, [sent(GOOD), sent("Request timeout expired", Step.AGAIN)], []),
        (NUMBERS, [sent(GOOD), sent("in ensemble 'e', Exceeds maximum queue size", Step.AGAIN)], []),
        # The words of refusals have values of the request.
        (TEXTS, [sent("bad date: ''"), sent("bad date: '1'")], [("TR908", WARNING)]),
        (NUMBERS, [sent(GOOD)], []),
        (NUMBERS, [], []),
    ],
)
def test_a_failure_is_as_severe_as_it_is_certain(text, all_sent, expected):
    assert found(text, *all_sent) == expected


@pytest.mark.parametrize(
    ("outputs", "words", "severity"),
    [
        ([Output("Y", "FP64", (3, 2))], "the output Y is FP64, but config.pbtxt declares FP32", ERROR),
        # Triton sends any shape.
        (
            [Output("Y", "FP32", (3, 4))],
            "the output Y has the shape [3, 4], but config.pbtxt declares [-1, 2]",
            WARNING,
        ),
        ([Output("Y", "FP32", (2,))], "the output Y has the shape [2], but config.pbtxt declares [-1, 2]", WARNING),
        ([Output("Z", "FP32", (1,))], "the response lacks the output Y", ERROR),
        ([Output("Y", "FP32", (3, 2), "ValueError: x")], "doesn't fit its shape [3, 2]: ValueError: x", ERROR),
    ],
)
def test_a_response_must_be_what_the_configuration_declares(outputs, words, severity):
    (one,) = judge(Target("m"), config(NUMBERS), [sent(Outcome((tuple(outputs),)))], ["m"])
    assert words in one.finding.message
    assert (one.finding.code, one.finding.severity) == ("TR905", severity)


def test_an_output_that_some_responses_have_may_be_meant():
    empty = Outcome(((),))
    assert found(NUMBERS, sent(GOOD), sent(empty)) == [("TR905", WARNING)]
    assert found(TEXTS, sent(empty)) == [("TR905", WARNING)]
    assert found(TEXTS, sent(empty, real=True)) == found(NUMBERS, sent(empty)) == [("TR905", ERROR)]


def test_the_batch_of_a_response_must_be_that_of_the_request():
    model = NUMBERS.replace("-1, 2", "2") + "max_batch_size: 8"
    request = replace(REQUEST, batch=3)
    for shape, count in (((3, 2), 0), ((1, 2), 1), ((), 1)):
        outcome = Outcome(((Output("Y", "FP32", shape),),))
        assert len(judge(Target("m"), config(model), [Sent(request, outcome)], ["m"])) == count


def test_responses_of_a_stream_may_lack_outputs_and_must_end():
    part = Outcome(((Output("Y", "FP32", (1, 2)),), ()))
    assert found(NUMBERS, sent(part), streams=True) == []
    (one,) = judge(Target("m", streams=True), config(NUMBERS), [sent(replace(part, is_late=True, seconds=20.0))], ["m"])
    assert one.finding.message == "its stream has not ended: no response was the final one after 20 s"


def test_a_finding_names_the_line_and_the_requests():
    judged = judge(Target("m"), config(NUMBERS), [sent(GOOD), sent(VALUE, Step.AGAIN, words="16 at once")], ["m"])
    (finding,) = distinct(judged)
    assert (finding.file, finding.line) == ("m/1/model.py", 7)
    assert finding.message == "1 of 2 requests (zeros, 16 at once): fails: ValueError: bad value"
    (finding,) = distinct(judge(Target("m"), config(NUMBERS), [sent(VALUE), sent(VALUE)], ["m"]))
    assert finding.message.startswith("each request (zeros): ")


def test_a_fault_of_a_step_is_told_once():
    in_step = judge(Target("m"), config(NUMBERS), [sent(VALUE)], ["m"])
    in_ensemble = judge(Target("all"), config(NUMBERS), [sent(f"in ensemble 'all', {VALUE}")], ["m", "all"])
    assert len(distinct([*in_ensemble, *in_step])) == 1
