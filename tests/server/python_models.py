"""A server of Python models that die, fail and wait on request, started as in the pods."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from model_images.support import Server, docker, series, serving
from support.api import eventually
from triton_operator.render import load_models, start
from triton_operator.render.delivery import BUSYBOX

CONFIG = """
backend: "python"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: %d } ]
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
MODEL = '''
import os
import time
import triton_python_backend_utils as pb_utils


def asked(model, what):
    """Whether the test asks for this: by a file."""
    return os.path.exists(f"/asks/{model}-{what}")


class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]
        # The first child stays a zombie of this process. The second one is alive as long as this process.
        if os.fork() == 0:
            os._exit(0)
        if os.fork() == 0:
            while os.getppid() != 1:
                time.sleep(0.1)
            time.sleep(3)
            os._exit(0)
        if asked(self.name, "waits"):
            print(f"{self.name} waits", flush=True)
        while asked(self.name, "waits"):
            time.sleep(0.1)
        if asked(self.name, "exits"):
            os._exit(1)
        if asked(self.name, "raises"):
            raise RuntimeError("no weights")

    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        if any((value < 0).any() for value in found):
            os._exit(1)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]) for value in found]
'''
IS_READY = """
    def is_ready(self):
        return not asked(self.name, "unready")
"""
PATH = "/models/0/{}/1/model.py"
"""The model.py of a model, as a server has it."""
MODELS = {"one": 1, "two": 1, "three": 3, "judge": 1}
"""The Python models, and the number of their instances. `judge` has an `is_ready`."""


def write_repository(folder: Path) -> Path:
    """Writes MODELS, and the ensemble `all`, whose step is `one`."""
    folder.chmod(0o755)  # the server has another user
    for name, instances in MODELS.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(CONFIG % instances)
        (folder / name / "1" / "model.py").write_text(MODEL + (IS_READY if name == "judge" else ""))
    (folder / "all" / "1").mkdir(parents=True)
    (folder / "all" / "config.pbtxt").write_text(ENSEMBLE)
    return folder


@dataclass(frozen=True)
class Watched:
    """A server that the start script watches. `folder`: for its files."""

    server: Server
    folder: Path

    def infer(self, model: str, value: int = 7) -> int:
        """Returns the status code of a request. A negative value ends the process that gets it."""
        tensor = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [value]}
        return self.post(f"/v2/models/{model}/infer", {"inputs": [tensor]})

    def load(self, model: str, config: dict[str, Any] | None = None, files: dict[str, str] | None = None) -> int:
        """Returns the status code. `config`: instead of config.pbtxt. `files`: path → base64, instead of the folder."""
        parameters = {**({"config": json.dumps(config)} if config else {}), **(files or {})}
        return self.post(f"/v2/repository/models/{model}/load", {"parameters": parameters} if parameters else {})

    def unload(self, model: str) -> None:
        assert self.post(f"/v2/repository/models/{model}/unload") == 200

    def post(self, path: str, body: object = None) -> int:
        data = json.dumps(body or {}).encode()
        return _status(urllib.request.Request(f"http://{self.server.http}{path}", data, method="POST"))

    def get(self, path: str) -> int:
        return _status(urllib.request.Request(f"http://{self.server.http}{path}"))

    @property
    def version(self) -> tuple[int, ...]:
        """The version of the server, such as 2, 51, 0."""
        with urllib.request.urlopen(f"http://{self.server.http}/v2", timeout=10) as answer:
            return tuple(map(int, json.load(answer)["version"].split(".")))

    def shell(self, script: str) -> str:
        return docker("exec", self.server.container, "sh", "-c", script)

    @contextmanager
    def asked(self, model: str, what: Literal["waits", "exits", "raises", "unready"]) -> Iterator[None]:
        """The model does this when it is loaded next, or is `unready`."""
        file = asks(self.folder) / f"{model}-{what}"
        file.touch()
        try:
            yield
        finally:
            file.unlink()

    def processes(self, model: str) -> list[str]:
        """Returns the numbers of the processes of a model that run, without those that model.py has forked."""
        lines = self.shell(_PROCESSES).splitlines()
        return [number for number, _, words in (line.partition(" ") for line in lines) if PATH.format(model) in words]

    def signal(self, model: str, name: Literal["KILL", "STOP"] = "KILL") -> None:
        """Sends a signal to one process of a model."""
        self.shell(f"kill -{name} {self.processes(model)[0]}")

    def wait_for_looks(self, number: int = 1) -> None:
        """Waits until the watch has looked: until another one of its `sleep` runs than now."""
        for _ in range(number + 1):
            before = self._sleeps()
            eventually(lambda before=before: self._sleeps() not in ("", before), 60, self._sleeps)

    def _sleeps(self) -> str:
        return self.shell(
            'for path in /proc/[0-9]*; do [ "$(cat $path/comm 2>/dev/null)" = busybox ] && echo $path; done; true'
        )

    def wait(self) -> None:
        """Waits until the server has ended. Its exit code says how: Triton waits for requests that get no answer."""
        subprocess.run(["docker", "wait", self.server.container], capture_output=True, check=True, timeout=180)

    def log(self) -> str:
        command = ["docker", "logs", self.server.container]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        return result.stdout + result.stderr

    def failures(self, model: str) -> dict[str, float]:
        """Returns the failed requests to a model, by reason."""
        counters = series(self.server, f'nv_inference_request_failure{{model="{model}"')
        return {name.partition('reason="')[2].partition('"')[0]: value for name, value in counters.items() if value}

    @property
    def told(self) -> list[str]:
        """What the termination message says died."""
        text = (self.folder / "message").read_text()
        assert not text or text.startswith(start.DIED), text
        return text.removeprefix(start.DIED).strip().split(", ") if text else []


_PROCESSES = """for path in /proc/[0-9]*; do
  read -r line <$path/stat || continue
  set -- ${line##*)}
  [ "$2" = 1 ] && [ $(($7 & 64)) = 0 ] && echo "${path#/proc/} $(tr '\\0' ' ' <$path/cmdline)"
done 2>/dev/null; true"""


def mark(folder: Path, restarts: int) -> Path:
    """Returns the mark of servers that dead processes have ended, one after the other. `folder`: that of `watched`."""
    return folder / "shm" / f"triton-operator-restarted-{restarts}"


def asks(folder: Path) -> Path:
    """Returns the folder of the files by which a test asks models for something."""
    result = folder / "asks"
    result.mkdir(exist_ok=True)
    return result


def _status(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@contextmanager
def watched(
    repository: Path,
    busybox: Path,
    folder: Path,
    *,
    models: Sequence[str] = ("one", "two", "all"),
    repair: Literal["Restart", "Report"] = "Restart",
    options: Sequence[str] = (),
    limits: Sequence[str] = (),
    ready: bool = True,
    readiness: str = start.READY,
    health: str = "",
    hold: int = 600,
) -> Iterator[Watched]:
    """Starts a server as the pods do, in explicit mode with these models. It is less patient with what it can't know.

    `folder`: for its files, such as `shm`, which is /dev/shm also of the next server. `ready`: waits until the models
    are. `readiness`: what the readiness probe requests. `health`: the model to which it sends a request. `hold`: the
    seconds after which a server restarts because of a dead process if it has done so again and again.
    """
    message, listed, shm = folder / "message", folder / "models", folder / "shm"
    message.write_text("")
    message.chmod(0o666)
    shm.mkdir(exist_ok=True)
    shm.chmod(0o777)
    listed.write_text("".join(f"{model}\n" for model in models))
    mounts = (
        f"--volume={busybox}:{BUSYBOX}:ro",
        f"--volume={listed}:{load_models.LIST}:ro",
        f"--volume={message}:/dev/termination-log",
        f"--volume={asks(folder)}:/asks:ro",
        f"--volume={shm}:/dev/shm",
        "--env=server=mine",
    )
    flags = ("--model-control-mode=explicit", "--exit-on-error=false", "--exit-timeout-secs=5", *options)
    command = start.command(repair, readiness, health)
    for old, new in (("long_patience=40", "long_patience=8"), ("hold=600", f"hold={hold}")):
        assert old in command[3]
        command[3] = command[3].replace(old, new)
    with serving(repository, limits=(*mounts, *limits), options=flags, command=command, ready=ready) as server:
        yield Watched(server, folder)
