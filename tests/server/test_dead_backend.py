"""A Python model's process dies. Triton stays ready, and every request to the model fails."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from model_images.support import MODEL_IMAGES, Server, docker, series, serving
from support.api import eventually
from triton_operator.render import load_models, start
from triton_operator.render.delivery import BUSYBOX

pytestmark = pytest.mark.server

CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
"""
ENSEMBLE = """
platform: "ensemble"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
ensemble_scheduling { step [ {
  model_name: "one" model_version: -1
  input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" }
} ] }
"""
MODEL = """
import os
import time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        # The first child stays a zombie of this process. The second one is alive as long as this process.
        if os.fork() == 0:
            os._exit(0)
        if os.fork() == 0:
            while os.getppid() != 1:
                time.sleep(0.1)
            time.sleep(3)
            os._exit(0)
        if args["model_name"] == "broken":
            os._exit(1)

    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]) for value in found]
"""
PATH = "/models/0/{}/1/model.py"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    folder.chmod(0o755)  # the server has another user
    for name in ("one", "two", "broken"):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(CONFIG)
        (folder / name / "1" / "model.py").write_text(MODEL)
    (folder / "all" / "1").mkdir(parents=True)
    (folder / "all" / "config.pbtxt").write_text(ENSEMBLE)
    return folder


@contextmanager
def started(
    repository: Path, busybox: Path, message: Path, repair: Literal["Restart", "Report"] = "Restart"
) -> Iterator[Server]:
    """Starts a server as the pods do, but with less patience. `message`: the file of the termination message."""
    message.touch()
    message.chmod(0o666)
    models = message.with_name("models")
    models.write_text("one\ntwo\nall\n")
    limits = (
        f"--volume={busybox}:{BUSYBOX}:ro",
        f"--volume={models}:{load_models.LIST}:ro",
        f"--volume={message}:/dev/termination-log",
        "--env=server=mine",
    )
    options = ("--model-control-mode=explicit", "--exit-timeout-secs=5")
    command = [part.replace("patience=40", "patience=8") for part in start.command(repair)]
    assert command != start.command(repair)
    with serving(repository, limits=limits, options=options, command=command) as server:
        yield server


LISTED = """for path in /proc/[0-9]*; do
  [ "$(cat $path/comm 2>/dev/null)" = triton_python_b ] && echo "${path#/proc/} $(tr '\\0' ' ' <$path/cmdline)"
done; true"""


def processes(server: Server) -> dict[str, str]:
    """Returns the command line of each live process of a Python model, by its number in the container."""
    lines = docker("exec", server.container, "sh", "-c", LISTED).splitlines()
    return {number: words for number, _, words in (line.partition(" ") for line in lines) if words}


def kill(server: Server, model: str) -> None:
    number = next(n for n, line in processes(server).items() if PATH.format(model) in line)
    docker("exec", server.container, "sh", "-c", f"kill -9 {number}")


def wait_for_looks(server: Server) -> None:
    """Waits until the watch has looked: until another one of its `sleep` runs than now."""
    sleeps = 'for path in /proc/[0-9]*; do [ "$(cat $path/comm 2>/dev/null)" = busybox ] && echo $path; done; true'

    def running() -> str:
        return docker("exec", server.container, "sh", "-c", sleeps)

    for _ in range(2):
        before = running()
        eventually(lambda before=before: running() not in ("", before), 60, running)


def post(server: Server, path: str, body: object = None) -> int:
    request = urllib.request.Request(f"http://{server.http}{path}", json.dumps(body or {}).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def infer(server: Server, model: str) -> int:
    tensor = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [7]}
    return post(server, f"/v2/models/{model}/infer", {"inputs": [tensor]})


def wait(server: Server) -> str:
    return subprocess.run(
        ["docker", "wait", server.container], capture_output=True, text=True, check=True
    ).stdout.strip()


def log(server: Server) -> str:
    result = subprocess.run(["docker", "logs", server.container], capture_output=True, text=True, check=True)
    return result.stdout + result.stderr


def test_a_dead_process_ends_the_server(repository: Path, busybox: Path, tmp_path: Path) -> None:
    """The kubelet starts it again. Until then, everything but the model's requests looks healthy."""
    message = tmp_path / "message"
    with started(repository, busybox, message) as server:
        assert (infer(server, "one"), infer(server, "two")) == (200, 200)
        environment = docker("exec", server.container, "sh", "-c", "tr '\\0' '\\n' </proc/1/environ").splitlines()
        assert "server=mine" in environment, "the script changes no variable of the user's"
        wait_for_looks(server)
        kill(server, "two")
        assert wait(server) == "0"
    assert message.read_text().split() == [*start.DIED.split(), PATH.format("two")]


def failures(server: Server, model: str) -> dict[str, float]:
    """Returns the failed requests to a model, by reason."""
    counters = series(server, f'nv_inference_request_failure{{model="{model}"')
    return {name.partition('reason="')[2].partition('"')[0]: value for name, value in counters.items() if value}


def test_says_only_what_died_where_repair_is_report(repository: Path, busybox: Path, tmp_path: Path) -> None:
    with started(repository, busybox, tmp_path / "message", "Report") as server:
        wait_for_looks(server)
        kill(server, "one")
        eventually(lambda: start.DIED in log(server), 60, lambda: log(server))
        assert PATH.format("one") in log(server)
        assert [infer(server, "one") for _ in range(10)] == [500] * 10
        assert infer(server, "two") == 200
        assert failures(server, "one") == {"BACKEND": 10}
        assert [infer(server, "all") for _ in range(10)] == [500] * 10
        # As docs/metrics.md says.
        assert (failures(server, "one"), failures(server, "all")) == ({"BACKEND": 20}, {"OTHER": 20})
        with urllib.request.urlopen(f"http://{server.http}/v2/models/all/ready", timeout=10) as answer:
            assert answer.status == 200
    assert (tmp_path / "message").read_text() == ""


def test_changes_of_models_end_no_server(repository: Path, busybox: Path, tmp_path: Path) -> None:
    """Nor do zombies of model.py's own, nor models that end while they load."""
    message = tmp_path / "message"
    with started(repository, busybox, message) as server:
        began = time.monotonic()
        for _ in range(8):
            assert post(server, "/v2/repository/models/two/unload") == 200
            assert post(server, "/v2/repository/models/broken/load") == 400
            assert post(server, "/v2/repository/models/two/load") == 200
            os.utime(repository / "one" / "config.pbtxt")
            assert post(server, "/v2/repository/models/one/load") == 200
        # A time in which a dead process ends the server, as the last step shows.
        time.sleep(max(0.0, 15 - (time.monotonic() - began)))
        assert (infer(server, "one"), infer(server, "two")) == (200, 200)
        kill(server, "one")
        assert wait(server) == "0"
    assert message.read_text().split() == [*start.DIED.split(), PATH.format("one")]


def test_a_process_that_dies_before_the_watch_has_seen_it_ends_the_server_later(
    repository: Path, busybox: Path, tmp_path: Path
) -> None:
    message = tmp_path / "message"
    with started(repository, busybox, message) as server:
        assert post(server, "/v2/repository/models/two/unload") == 200
        assert post(server, "/v2/repository/models/two/load") == 200
        kill(server, "two")
        assert infer(server, "two") == 500
        # Triton can't unload a model whose process died and that has had a request: it exits after its timeout.
        assert wait(server) == "1"
    # Perhaps the watch has just seen it.
    words = ("a model that had just started", PATH.format("two"))
    assert message.read_text().strip() in [f"{start.DIED} {word}" for word in words]


def test_processes_that_a_model_has_forked_end_no_server(repository: Path, busybox: Path, tmp_path: Path) -> None:
    """When the model is unloaded they become children of tritonserver, which leaves them as zombies."""
    message = tmp_path / "message"
    with started(repository, busybox, message) as server:
        wait_for_looks(server)
        assert post(server, "/v2/repository/models/two/unload") == 200
        eventually(lambda: zombies(server) >= 2, 60, lambda: docker("exec", server.container, "ps", "-ef"))
        # More looks than a process needs that was never seen alive.
        for _ in range(5):
            wait_for_looks(server)
        assert infer(server, "one") == 200
        assert message.read_text() == ""
        kill(server, "one")
        assert wait(server) == "0"
    assert message.read_text().split() == [*start.DIED.split(), PATH.format("one")]


def zombies(server: Server) -> int:
    """Returns the number of zombies that are children of tritonserver, and have the name of a Python model."""
    script = "cat /proc/[0-9]*/stat 2>/dev/null | grep -c '(triton_python_b) Z 1 '; true"
    return int(docker("exec", server.container, "sh", "-c", script))


def test_a_dead_instance_of_several_ends_the_server(busybox: Path, tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.touch()
    message.chmod(0o666)
    limits = (f"--volume={busybox}:{BUSYBOX}:ro", f"--volume={message}:/dev/termination-log")
    with serving(MODEL_IMAGES / "passthrough" / "repository", limits=limits, command=start.command()) as server:
        assert len(processes(server)) == 3
        wait_for_looks(server)
        kill(server, "passthrough")
        assert wait(server) == "0"
    assert PATH.format("passthrough") in message.read_text()
