"""Paths, calls to Docker, and a Triton in Docker."""

import functools
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from kubectl_triton.calibrate import load
from support import evidence

MODEL_IMAGES = Path(__file__).parents[2] / "model_images"
DETECTION = MODEL_IMAGES / "detection"
LANGUAGE = MODEL_IMAGES / "language"
SERVER_IMAGE = os.environ.get("SERVER_IMAGE", "triton-operator/server:dev")
"""The image of the servers. If the environment names it, it is not built."""


class Server(NamedTuple):
    """The host:port of each of Triton's listeners, and its container."""

    http: str
    grpc: str
    metrics: str
    container: str


def docker(*arguments: str) -> str:
    """Runs docker and returns its output. A failure shows its standard error."""
    result = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"docker {' '.join(arguments[:2])}: {result.stderr}"
    return result.stdout.strip()


@functools.cache
def need_server_image() -> None:
    """Builds the server image, once in this process. Docker's cache has it, unless model_images/server has changed."""
    assert shutil.which("docker"), "these tests need Docker; -m 'not server' leaves them out"
    if "SERVER_IMAGE" not in os.environ:
        docker("build", "--quiet", "--tag", SERVER_IMAGE, str(MODEL_IMAGES / "server"))


_STARTS = 3
PORTS = ("8000", "8001", "8002")
RESTRICTIONS = ("--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges")
"""Options of docker run that restrict a container as the pods are."""


@contextmanager
def serving(
    *repositories: Path,
    options: Sequence[str] = (),
    limits: Sequence[str] = (),
    command: Sequence[str] = ("tritonserver",),
    ready: bool = True,
) -> Iterator[Server]:
    """Starts Triton with these model repositories and the restrictions of a restricted pod.

    `options` are for tritonserver, `limits` for docker run. `command` starts tritonserver. Yields when every model is
    ready; without `ready`, at once.
    """
    need_server_image()
    container = f"triton-test-{uuid.uuid4().hex[:12]}"
    ports = [f"--publish=127.0.0.1:0:{port}" for port in PORTS]
    places = {path: f"/models/{k}" for k, path in enumerate(repositories)}
    mounts = [f"--volume={path}:{place}:ro" for path, place in places.items()]
    flags = [*(f"--model-repository={place}" for place in places.values()), *options]
    try:
        docker(
            *("run", "--detach", f"--name={container}", "--user=1000:1000", "--shm-size=512m"),
            *(*RESTRICTIONS, *limits, *ports, *mounts, SERVER_IMAGE, *command, *flags),
        )
        with evidence.on_failure(container, evidence.of_container(container)):
            yield Server(*(addresses if ready else _published)(container), container)
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", container], capture_output=True, check=False)


def addresses(container: str) -> list[str]:
    """Returns the addresses of Triton's three ports when it is ready. Fails with its log if it doesn't get ready.

    Starts it again, as a kubelet does, when it has ended because a process of its Python backend got no lock in time,
    which happens on a busy machine.
    """
    for _ in range(_STARTS):
        addresses = _published(container)
        if addresses:
            # The metrics listener starts last.
            urls = f"http://{addresses[0]}/v2/health/ready", f"http://{addresses[2]}/metrics"
            if all(_answers(url, container) for url in urls):
                return addresses
        result = subprocess.run(["docker", "logs", "--tail=60", container], capture_output=True, text=True, check=False)
        log = result.stdout + result.stderr
        if "boost::interprocess::lock_exception" not in log:
            break
        docker("start", container)
    pytest.fail(f"Triton didn't become ready; its log:\n{log}")


def _published(container: str) -> list[str]:
    """Returns the addresses of Triton's three ports; none if the container has ended."""
    result = subprocess.run(["docker", "port", container], capture_output=True, text=True, check=False)
    lines = dict(line.split("/tcp -> ") for line in reversed(result.stdout.splitlines()) if "/tcp -> " in line)
    return [lines[port] for port in PORTS] if lines.keys() >= set(PORTS) else []


def _answers(url: str, container: str, seconds: float = 180) -> bool:
    """Waits for a success response. Returns False if the server exits or takes too long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return True
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            if docker("inspect", "--format={{.State.Running}}", container) != "true":
                return False
            time.sleep(0.5)
    return False


def series(server: Server, prefix: str = "") -> dict[str, float]:
    """Returns the current metrics whose name starts with `prefix`, by series as the metrics page writes it."""
    with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if line.startswith(prefix) and not line.startswith("#"))
    return {name: float(value) for name, value in samples}


@contextmanager
def load_generator(image: str, server: str, *options: str) -> Iterator[load.Run]:
    """Starts the load generator in the network of the server's container.

    `options` are for docker run. Yields a function that runs its commands.
    """
    name = f"load-generator-{uuid.uuid4().hex[:12]}"
    docker("run", "--detach", f"--name={name}", f"--network=container:{server}", *options, image)

    def execute(command: Sequence[str], seconds: float) -> str:
        result = subprocess.run(
            ["docker", "exec", name, *command], capture_output=True, text=True, check=False, timeout=seconds
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    try:
        with evidence.on_failure(name, evidence.of_container(name)):
            yield execute
    finally:
        docker("rm", "--force", name)
