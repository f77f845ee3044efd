"""The load generator with a model that streams on a real Triton."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator

import pytest

from kubectl_triton.calibrate import load
from kubectl_triton.calibrate.search import LATENCY, TPOT, TTFT, Step
from model_images.support import RESTRICTIONS, load_generator, serving

pytestmark = pytest.mark.server

CODE = """
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            given = int(pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()[0])
            threading.Thread(target=self.answer, args=(request.get_response_sender(), given)).start()

    def answer(self, sender, given):
        for _ in range(abs(given)):
            time.sleep(0.05)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array([1], np.int32))]))
        if given < 0:
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("this input is bad")))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
"""Sends as many responses as the input says, every 50 ms, and an empty one that ends the stream."""
CONFIG = """
backend: "python"
model_transaction_policy { decoupled: true }
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""


@pytest.fixture(scope="module")
def execute(tmp_path_factory: pytest.TempPathFactory, load_generator_image: str) -> Iterator[load.Run]:
    """Runs commands in the load generator's container, beside a server with the model of this test."""
    folder = tmp_path_factory.mktemp("models")
    folder.chmod(0o755)
    (folder / "count" / "1").mkdir(parents=True)
    (folder / "count" / "1" / "model.py").write_text(textwrap.dedent(CODE))
    (folder / "count" / "config.pbtxt").write_text(CONFIG)
    with serving(folder) as server, load_generator(load_generator_image, server.container, *RESTRICTIONS) as execute:
        yield execute


def streams(execute: load.Run, *given: int) -> load.Load:
    """Writes these inputs in perf_analyzer's format into the container and returns the load with them."""
    rows = [{"INPUT": [number]} for number in given]
    execute(["sh", "-c", 'printf %s "$0" >/tmp/inputs.json', json.dumps({"data": rows})], 30)
    return load.Load("count", "grpc", "/tmp/inputs.json", streams=True)


def test_each_response_is_timed_and_the_empty_one_at_the_end_is_not_counted(execute: load.Run) -> None:
    sent = streams(execute, 5)
    load.check_inputs(execute(load.config_command(sent), 30), has_file=True, streams=True)
    single = load.idle(sent, execute)
    assert single.responses == 5 * single.requests
    assert all(single.latencies[kind].p50 >= 0.05 for kind in (TTFT, TPOT))
    assert single.latencies[LATENCY].p50 >= 0.25
    assert max(single.latencies[kind].p50 for kind in (TTFT, TPOT)) < single.latencies[LATENCY].p50 / 2
    # Five streams are open at the same time, and none waits for another.
    point = load.measure(sent, execute, Step("doubling", 20, 4, 1))
    assert (point.responses, point.failures) == (5 * point.requests, 0)
    assert point.requests
    assert 0.05 <= point.latency(TPOT).p50 < 0.25


def test_streams_that_fail_or_are_empty_are_failures(execute: load.Run) -> None:
    # perf_analyzer doesn't always have the server's words.
    with pytest.raises(load.LoadError, match=r"this input is bad|Failed to retrieve results"):
        load.idle(streams(execute, -1), execute)
    step = Step("doubling", 10, 2, 1)
    broken = load.measure(streams(execute, 2, -2), execute, step)
    assert broken.failures
    assert "Failed to retrieve results" in broken.error
    empty = load.measure(streams(execute, 0, 1), execute, step)
    assert empty.failures
