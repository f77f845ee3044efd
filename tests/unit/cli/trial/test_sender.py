"""Requests over gRPC, to a server whose models end their responses, or don't."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from kubectl_triton.trial.outcome import Target
from kubectl_triton.trial.requests import Request
from kubectl_triton.trial.sender import Sender
from kubectl_triton.trial.tensors import Tensor
from support.fake_triton import FakeTriton, serving

REQUEST = Request((Tensor("X", "FP32", np.zeros(2, np.float32)),), "zeros")


class Models(FakeTriton):
    """`good` answers, `waits` doesn't until its request is cancelled, `never` sends a response that isn't the last."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled = threading.Event()
        self.both = threading.Barrier(2)

    def ModelInfer(self, request: Any, context: Any) -> Any:
        if request.model_name == "together":
            self.both.wait(5)
        if request.model_name == "waits":
            context.add_callback(self.cancelled.set)
            self.cancelled.wait(60)
        return service_pb2.ModelInferResponse(model_name=request.model_name)

    def ModelStreamInfer(self, requests: Any, context: Any) -> Iterator[Any]:
        request = next(requests)
        ends = request.model_name == "good" and request.parameters["triton_enable_empty_final_response"].bool_param
        for is_last in (False, True)[: 2 if ends else 1]:
            response = service_pb2.ModelInferResponse(model_name=request.model_name)
            output = service_pb2.ModelInferResponse.InferOutputTensor(name="Y", datatype="FP32", shape=[0])
            response.outputs.extend([] if is_last else [output])
            response.parameters["triton_final_response"].bool_param = is_last
            yield service_pb2.ModelStreamInferResponse(infer_response=response)
        context.add_callback(self.cancelled.set)
        if not ends:
            self.cancelled.wait(60)


@pytest.fixture
def models() -> Iterator[Models]:
    with serving(Models()) as triton:
        yield triton


@pytest.fixture
def sender(models: Models) -> Iterator[Sender]:
    with closing(Sender(f"127.0.0.1:{models.port}")) as connected:
        yield connected


def test_a_stream_that_ends_has_its_responses(sender: Sender) -> None:
    (outcome,) = sender.send(Target("good", streams=True), [REQUEST], 10)
    assert (outcome.is_late, outcome.error) == (False, "")
    assert [[output.name for output in response] for response in outcome.responses] == [["Y"]]


def test_a_stream_that_does_not_end_is_late_with_the_responses_so_far(sender: Sender) -> None:
    """A busy machine may need more than the shortest of these limits for the first response."""
    for seconds in (0.3, 1.0, 3.0, 10.0, 30.0):
        (outcome,) = sender.send(Target("never", streams=True), [REQUEST], seconds)
        assert (outcome.is_late, outcome.seconds) == (True, seconds)
        if outcome.responses:
            break
    assert [[output.name for output in response] for response in outcome.responses] == [["Y"]]


def test_a_request_that_is_not_answered_is_late(sender: Sender, models: Models) -> None:
    (outcome,) = sender.send(Target("waits"), [REQUEST], 0.3)
    assert outcome.is_late
    assert models.cancelled.wait(30), "the server knows that nobody waits"


def test_requests_are_sent_at_once(sender: Sender) -> None:
    outcomes = sender.send(Target("together"), [REQUEST] * 2, 10)
    assert [outcome.error for outcome in outcomes] == ["", ""]


def test_a_request_is_cancelled_while_the_model_works(sender: Sender, models: Models) -> None:
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(sender.cancel, Target("waits"), REQUEST, 0.3)
        assert models.cancelled.wait(30)
        assert done.result(5) is None
