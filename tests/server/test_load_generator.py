"""The load generator of `kubectl triton calibrate` with a real Triton: rates, inputs and failures."""

from __future__ import annotations

import base64
import json
import struct
import textwrap
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubectl_triton.calibrate import load
from kubectl_triton.calibrate.search import LATENCY, Step, limited
from model_images.support import RESTRICTIONS, load_generator, serving

pytestmark = pytest.mark.server

CODE = """
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.seconds = 0 if args["model_name"] == "fast" else 0.02

    def execute(self, requests):
        answers = []
        for request in requests:
            time.sleep(self.seconds)
            given = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
            if given.flat[0] in (13, b"bad"):
                answers.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("this input is bad")))
            else:
                answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", given)]))
        return answers
"""


def write(folder: Path, name: str, kind: str, batch: int) -> None:
    place = folder / name / "1"
    place.mkdir(parents=True)
    (place / "model.py").write_text(textwrap.dedent(CODE))
    tensors = [f'{d} [ {{ name: "{d.upper()}" data_type: {kind} dims: [ 1 ] }} ]' for d in ("input", "output")]
    lines = [f'name: "{name}"', 'backend: "python"', f"max_batch_size: {batch}", *tensors]
    (place.parent / "config.pbtxt").write_text("\n".join([*lines, "instance_group [ { kind: KIND_CPU } ]", ""]))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, load_generator_image: str) -> Iterator[load.Run]:
    """Runs commands in the load generator's container, beside a server with the models of this test."""
    folder = tmp_path_factory.mktemp("models")
    write(folder, "numbers", "TYPE_INT32", 0)
    write(folder, "fast", "TYPE_INT32", 0)
    write(folder, "strings", "TYPE_STRING", 4)
    folder.chmod(0o755)
    with serving(folder) as server, load_generator(load_generator_image, server.container, *RESTRICTIONS) as run:
        yield run


def step(rate: float, seconds: float = 6) -> Step:
    return Step("doubling", rate, seconds, 1)


def inputs(run: load.Run, *rows: object) -> str:
    """Writes inputs in perf_analyzer's format into the container and returns the path."""
    path = f"/tmp/{uuid.uuid4().hex}.json"
    run(["sh", "-c", f'printf %s "$0" >{path}', json.dumps({"data": [{"INPUT": row} for row in rows]})], 30)
    return path


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_measures_the_latency_below_and_above_the_capacity(run: load.Run, protocol: str) -> None:
    sent = load.Load("numbers", protocol)
    load.check_inputs(run(load.config_command(sent), 30), has_file=False)
    assert 0.02 <= load.idle(sent, run).latencies[LATENCY].p50 < 0.2
    below, above = load.measure(sent, run, step(10)), load.measure(sent, run, step(100))
    assert (below.failures, above.failures) == (0, 0)
    assert (below.requests, above.requests) == (60, 600)
    assert 0.02 <= below.latency(LATENCY).p50 <= below.latency(LATENCY).p99 < 1.0
    # 600 requests of 20 ms that arrive in 6 s: the last one waits for 6 s, because nothing slows the load generator.
    assert above.latency(LATENCY).p99 > 4
    assert not limited(below)


def test_more_than_the_load_generator_can_send_is_reported(run: load.Run) -> None:
    # Few requests: a busy machine takes long to answer them, and an unfinished measurement counts as one of the server.
    assert limited(load.measure(load.Load("fast"), run, step(50_000, 0.005)))


def test_a_failed_request_has_the_words_of_the_model(run: load.Run) -> None:
    sent = load.Load("numbers", inputs=inputs(run, [7], [13]))
    point = load.measure(sent, run, step(20, 2))
    assert point.failures >= 1
    assert "this input is bad" in point.error


def test_strings_come_from_the_users_file(run: load.Run) -> None:
    sent = load.Load("strings")
    with pytest.raises(load.LoadError, match="the input INPUT is a string"):
        load.check_inputs(run(load.config_command(sent), 30), has_file=False)
    # perf_analyzer sends these bytes unchanged. Triton expects the length before each string.
    picture = base64.b64encode(struct.pack("<I", 256) + bytes(range(256))).decode()
    good = load.Load("strings", inputs=inputs(run, {"b64": picture}))
    assert load.measure(good, run, step(10, 2)).failures == 0
    bad = load.Load("strings", inputs=inputs(run, ["bad"]))
    assert "this input is bad" in load.measure(bad, run, step(10, 2)).error


def test_an_unknown_model_is_an_error_with_tritons_words(run: load.Run) -> None:
    start = time.monotonic()
    with pytest.raises(load.LoadError, match="'nope' is not found"):
        load.idle(load.Load("nope"), run)
    assert time.monotonic() - start < 30
