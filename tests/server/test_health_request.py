"""The readiness probe with spec.healthRequest, against a real Triton."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from model_images.support import Server, docker, serving
from support import gen
from support.api import eventually
from triton_operator.probe import fetch
from triton_operator.probe.readiness import says_not_ready
from triton_operator.render import readiness
from triton_operator.render.delivery import BUSYBOX
from triton_repository_check.model import SERVED_AT

pytestmark = pytest.mark.server

CONFIG = """
backend: "python"
max_batch_size: 1
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
dynamic_batching { default_queue_policy { max_queue_size: 8 } }
"""
MODEL = """
import os
import time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def is_ready(self):
        return not os.path.exists("/dev/shm/unready")

    def execute(self, requests):
        if os.path.exists("/dev/shm/fails"):
            raise RuntimeError("an illegal memory access was encountered")
        while os.path.exists("/dev/shm/hangs"):
            time.sleep(0.1)
        if os.path.exists("/dev/shm/slow"):
            time.sleep(0.6)
        tensors = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        if any((tensor < 0).any() for tensor in tensors):
            raise RuntimeError("an illegal memory access was encountered")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", tensor)]) for tensor in tensors]
"""


def request(value: int) -> dict[str, Any]:
    return {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [value]}]}


@pytest.fixture(scope="module")
def server(busybox: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("repository")
    folder.chmod(0o755)  # the server has another user
    model = folder / "echo"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(CONFIG)
    (model / "1" / "model.py").write_text(MODEL)
    (model / "health.json").write_text(json.dumps(request(7)))
    (model / "raw").write_bytes(bytes([7, 0, 0, 0]))
    (model / "wrong.json").write_text(json.dumps({"inputs": []}))
    cached = folder / "cached"
    shutil.copytree(model, cached)
    (cached / "config.pbtxt").write_text(CONFIG + "response_cache { enable: true }\n")
    # The user's proxy isn't for this request.
    limits = (f"--volume={busybox}:{BUSYBOX}:ro", "--env=http_proxy=http://127.0.0.1:1")
    with serving(folder, limits=limits, options=["--cache-config=local,size=1000000"]) as server:
        yield server


def probe(server: Server, file: str = "echo/health.json", seconds: int = 5) -> tuple[int, str]:
    """Runs the command of the probe as the kubelet does. Returns its exit code and its output."""
    request = {"file": file, "timeoutSeconds": seconds}
    command = readiness.probe(gen.model(entrypoint="echo", healthRequest=request))["exec"]["command"]
    command = [part.replace(f"{SERVED_AT}/{file}", f"/models/0/{file}") for part in command]
    result = subprocess.run(["docker", "exec", server.container, *command], capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + result.stderr


def asked(server: Server, model: str) -> bool:
    """Returns what the operator learns from a server whose probe has failed."""

    async def ask() -> bool:
        client = fetch.HttpClient()
        return await says_not_ready(client, server.http, readiness.path(gen.model(entrypoint=model)))

    return asyncio.run(ask())


@contextmanager
def state(server: Server, name: str) -> Iterator[None]:
    """The model fails, hangs or is slow."""
    docker("exec", server.container, "touch", f"/dev/shm/{name}")
    try:
        yield
    finally:
        docker("exec", server.container, "rm", f"/dev/shm/{name}")
        eventually(lambda: probe(server)[0] == 0, 60)


@contextmanager
def clients(server: Server, number: int, value: int = 7) -> Iterator[Callable[[], int]]:
    """Sends requests all the time, each client one after another. Gives the number of those that failed."""
    over, failures = threading.Event(), list[int]()

    def send() -> None:
        while not over.is_set():
            url = f"http://{server.http}/v2/models/echo/infer"
            try:
                with urllib.request.urlopen(url, json.dumps(request(value)).encode(), timeout=60) as response:
                    response.read()
            except urllib.error.HTTPError as error:
                failures.append(error.code)

    threads = [threading.Thread(target=send, daemon=True) for _ in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: len(failures)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def waiting(server: Server) -> int:
    """Returns the number of requests in Triton's queue and in execution."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("nv_inference_pending_request_count"))


def test_a_server_that_answers_is_ready(server: Server) -> None:
    assert probe(server) == (0, "")
    assert probe(server, "echo/raw") == (0, "")


def test_says_what_triton_answers(server: Server) -> None:
    with state(server, "fails"):
        code, words = probe(server)
    assert code == 1
    assert "the health request /models/0/echo/health.json" in words
    assert "HTTP/1.1 500" in words
    assert "an illegal memory access was encountered" in words


def test_a_wrong_request_is_never_ready(server: Server) -> None:
    for file in ("echo/wrong.json", "echo/missing.json"):
        code, words = probe(server, file)
        assert code == 1
        assert file in words


def test_a_server_whose_model_is_not_loaded_is_not_ready(server: Server) -> None:
    command = readiness.probe(gen.model(entrypoint="other", healthRequest={"file": "echo/health.json"}))["exec"]
    result = subprocess.run(
        ["docker", "exec", server.container, *command["command"]], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert "/v2/models/other/ready: " in result.stdout


def test_a_server_that_says_itself_that_it_is_not_ready_is_known(server: Server) -> None:
    """So it isn't evicted: a model that is loaded again, and one whose `is_ready` says no, have failed no request."""
    assert not asked(server, "echo")
    assert asked(server, "other")
    with state(server, "unready"):
        # Triton calls `is_ready` from 26.03 on.
        code, words = probe(server)
        assert asked(server, "echo") == (code == 1)
        assert words == "" or words.startswith("/v2/models/echo/ready: HTTP/1.1 400")


def test_a_server_that_hangs_does_not_say_so(server: Server) -> None:
    with state(server, "hangs"):
        eventually(lambda: probe(server, seconds=1)[0] == 1, 60)
        assert not asked(server, "echo")


def test_a_server_that_hangs_is_not_ready(server: Server) -> None:
    with state(server, "hangs"):
        # The last answer may be of the second in which the first probe began.
        code, words = eventually(lambda: (result := probe(server, seconds=1))[0] and result, 60)
    assert code == 1
    assert words.strip() == "the health request /models/0/echo/health.json: no answer in time"


def test_a_cache_answers_for_a_model_that_hangs(server: Server) -> None:
    """So the repository check refuses a response cache there: TR515."""
    assert probe(server, "cached/health.json") == (0, "")
    with state(server, "hangs"):
        # The last answer may be of the second in which the first probe began.
        eventually(lambda: probe(server, seconds=1)[0] == 1, 60)
        assert probe(server, "cached/health.json") == (0, "")


def test_a_server_with_much_work_is_ready(server: Server) -> None:
    """Each request takes 0.6 s, and four or five others come first."""
    with clients(server, 5) as refused, state(server, "slow"):
        eventually(lambda: waiting(server) >= 4, 60, lambda: waiting(server))
        assert [probe(server, seconds=1) for _ in range(3)] == [(0, "")] * 3
        assert refused() == 0


def test_a_server_that_refuses_requests_because_it_has_too_many_is_ready(server: Server) -> None:
    with clients(server, 12) as refused, state(server, "slow"):
        eventually(refused, 60)
        assert [probe(server, seconds=2) for _ in range(3)] == [(0, "")] * 3


def test_a_server_that_hangs_with_a_full_queue_is_not_ready(server: Server) -> None:
    """It refuses the health request, too."""
    with clients(server, 12) as refused, state(server, "hangs"):
        eventually(refused, 60)
        # A probe that came before the queue was full waits, and gets no answer.
        code, _ = eventually(lambda: "503" in (result := probe(server, seconds=1))[1] and result, 60)
    assert code == 1


def test_requests_of_clients_that_all_fail_do_not_matter(server: Server) -> None:
    with clients(server, 4, value=-1) as failures:
        eventually(lambda: failures() > 20, 60)
        assert [probe(server)[0] for _ in range(3)] == [0] * 3


def test_leaves_no_processes_behind(server: Server) -> None:
    """tritonserver is the first process of the container, and reaps none that isn't its own."""
    script = "cat /proc/[0-9]*/stat 2>/dev/null | grep -c busybox; true"

    def left() -> int:
        return int(docker("exec", server.container, "sh", "-c", script))

    before = left()
    assert [probe(server)[0] for _ in range(3)] == [0] * 3
    with state(server, "hangs"):
        probe(server, seconds=1)
    eventually(lambda: left() <= before, 60, left)
