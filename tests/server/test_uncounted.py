"""A backend in C that reports no statistics, on a real Triton: what moves, and what the operator finds."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc

from model_images.support import Server, series, serving
from triton_operator.api.servers import Uncounted
from triton_operator.probe import fetch
from triton_operator.probe.statistics import uncounted

pytestmark = pytest.mark.server

SOURCE = Path(__file__).parent / "silent_backend" / "silent.c"
TENSORS = """
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
INSTANCE = "dynamic_batching {} instance_group [ { kind: KIND_CPU count: 1 } ]"
WARM = """
model_warmup [ { name: "one" batch_size: 1
  inputs { key: "INPUT" value: { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } } } ]
"""
PIPE = """
ensemble_scheduling { step [ { model_name: "%s" model_version: -1
  input_map { key: "INPUT" value: "INPUT" } output_map { key: "OUTPUT" value: "OUTPUT" } } ] }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves models of a backend that reports nothing, and of one that differs only in its reports."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    root = tmp_path_factory.mktemp("uncounted")
    mounts = []
    for name, flags in (("silent", []), ("counted", ["-DREPORTS"])):
        library = root / "backends" / name / f"libtriton_{name}.so"
        library.parent.mkdir(parents=True)
        subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", *flags, "-o", library, SOURCE], check=True)
        mounts.append(f"--volume={library.parent}:/opt/tritonserver/backends/{name}:ro")
        for model, more in ((name, INSTANCE), (f"{name}_warm", INSTANCE + WARM), (f"{name}_pipe", PIPE % name)):
            (root / "models" / model / "1").mkdir(parents=True)
            kind = 'platform: "ensemble"' if model.endswith("pipe") else f'backend: "{name}"'
            (root / "models" / model / "config.pbtxt").write_text(f"{kind} max_batch_size: 4 {TENSORS}{more}")
    for folder in (root.parent, root):
        folder.chmod(0o755)
    with serving(root / "models", limits=mounts) as running:
        yield running


def find(server: Server, entrypoint: str) -> Uncounted:
    """Asks the server as the operator does."""

    async def ask() -> Uncounted:
        client = fetch.HttpClient()
        return await uncounted(client, server.http, entrypoint)

    return asyncio.run(ask())


def send(server: Server, model: str, number: int) -> int:
    """Sends requests one after the other; returns the number of correct answers."""
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        right = 0
        for value in range(number):
            tensor = tritonclient.grpc.InferInput("INPUT", [1, 1], "INT32")
            tensor.set_data_from_numpy(np.array([[value]], np.int32))
            right += client.infer(model, [tensor]).as_numpy("OUTPUT")[0, 0] == value
        return right


def counters(server: Server, model: str) -> set[float]:
    """Returns the values of all counters of requests of a model."""
    samples = {**series(server, "nv_inference_request"), **series(server, "nv_inference_exec_count")}
    return {value for name, value in samples.items() if f'model="{model}"' in name}


def test_finds_a_model_whose_warm_up_is_not_counted(server: Server) -> None:
    assert find(server, "silent_warm") == (("silent_warm", "its warm-up isn't counted"),)
    assert find(server, "counted_warm") == ()


def test_finds_a_step_that_an_ensemble_has_called(server: Server) -> None:
    assert find(server, "silent_pipe") == (), "an idle model looks like one that isn't counted"
    for pipe in ("silent_pipe", "counted_pipe"):
        assert send(server, pipe, 60) == 60
    assert find(server, "silent_pipe") == (("silent", "requests of the ensemble silent_pipe are counted"),)
    assert find(server, "counted_pipe") == ()


def test_only_the_queue_shows_that_a_model_without_reports_answers(server: Server) -> None:
    assert send(server, "silent", 10) == 10
    assert counters(server, "silent") == {0}, "an upgrade of Triton counts these requests: simplify the search"
    stop = threading.Event()

    def keep_sending() -> None:
        while not stop.is_set():
            send(server, "silent", 1)

    falls, last, deadline = 0, 0.0, time.monotonic() + 120
    with ThreadPoolExecutor(12) as clients:
        tasks = [clients.submit(keep_sending) for _ in range(12)]
        while falls < 10 and time.monotonic() < deadline:
            now = sum(
                value
                for name, value in series(server, "nv_inference_pending_request_count").items()
                if 'model="silent"' in name
            )
            falls, last = falls + (now < last), now
            time.sleep(0.02)
        stop.set()
        for task in tasks:
            task.result()
    assert falls >= 10, "the alert TritonModelRequestsNotCounted needs these"
    assert counters(server, "silent") == {0}
