"""The load generator with models that stream on a real Triton, and the search for the capacity of the sample."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kubectl_triton.calibrate import load
from kubectl_triton.calibrate.search import LATENCY, TPOT, TTFT, Goal, Point, Step, limited, run, search
from model_images.language import copy
from model_images.support import RESTRICTIONS, load_generator, serving

pytestmark = pytest.mark.server

TOKENS_PER_SECOND, TOKENS = 120, 4
"""What the sample generates for all requests together, and the tokens of one answer: 30 requests/s."""
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
    """Runs commands in the load generator's container, beside a server with the models of this test."""
    folder = tmp_path_factory.mktemp("models")
    folder.chmod(0o755)
    copy(folder / "language", tokens_per_second=str(TOKENS_PER_SECOND))
    (folder / "count" / "1").mkdir(parents=True)
    (folder / "count" / "1" / "model.py").write_text(textwrap.dedent(CODE))
    (folder / "count" / "config.pbtxt").write_text(CONFIG)
    with serving(folder) as server, load_generator(load_generator_image, server.container, *RESTRICTIONS) as execute:
        yield execute


def streams(execute: load.Run, model: str, *rows: dict[str, object]) -> load.Load:
    """Writes inputs in perf_analyzer's format into the container and returns the load with them."""
    path = f"/tmp/{model}.json"
    execute(["sh", "-c", f'printf %s "$0" >{path}', json.dumps({"data": rows})], 30)
    return load.Load(model, "grpc", path, streams=True)


def test_each_response_is_timed_and_the_empty_one_at_the_end_is_not_counted(execute: load.Run) -> None:
    sent = streams(execute, "count", {"INPUT": [5]})
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
        load.idle(streams(execute, "count", {"INPUT": [-1]}), execute)
    step = Step("doubling", 10, 2, 1)
    broken = load.measure(streams(execute, "count", {"INPUT": [2]}, {"INPUT": [-2]}), execute, step)
    assert broken.failures
    assert "Failed to retrieve results" in broken.error
    empty = load.measure(streams(execute, "count", {"INPUT": [0]}, {"INPUT": [1]}), execute, step)
    assert empty.failures


def test_finds_the_capacity_of_the_sample_language(execute: load.Run) -> None:
    sampling = json.dumps({"max_tokens": TOKENS})
    text = {"text_input": ["Once there was"], "stream": [True], "sampling_parameters": [sampling]}
    sent = streams(execute, "language", text)
    goal = Goal({TTFT: 1.0, TPOT: 0.5}, precision=0.1)
    single = load.idle(sent, execute)
    assert load.impossible(goal, single) == ""
    assert load.answer_seconds(goal, single) == pytest.approx(1.0 + (TOKENS - 1) * 0.5)

    def measure(step: Step) -> Point:
        for _ in range(3):  # a busy machine may send late
            point = load.measure(sent, execute, replace(step, seconds=min(step.seconds, 12)))
            if not limited(point):
                break
        return point

    lines: list[str] = []
    outcome = run(search(goal, 8), measure, lambda step, point: lines.append(f"{step} {point}"))
    # `make bench NAME=calibrate` measures how exact it is. On a busy machine a server handles less.
    capacity = TOKENS_PER_SECOND / TOKENS
    assert capacity / 2 < outcome.rate < 1.15 * capacity, "\n".join([outcome.reason, *lines])
    assert outcome.tokens == pytest.approx(TOKENS * outcome.rate)
