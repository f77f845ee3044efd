"""Starts tritonserver in Docker on a repository."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import IO, cast

import click

from kubectl_triton import signals
from triton_repository_check import view
from triton_repository_check.expected import Expected

from .tritonserver import FIXED, IMAGE, MAX_LOG, SECONDS, Start, StartError, flags, refusals

_SHARED_MEMORY = 1 << 30
"""Size of /dev/shm in bytes if none is known. Docker's own default is too small for some models."""
_HTTP, _GRPC = "8000/tcp", "8001/tcp"
_PUBLISHED = tuple(f"--publish=127.0.0.1:0:{port.partition('/')[0]}" for port in (_HTTP, _GRPC))
_HINT = re.compile("(Run|See) 'docker ")
"""The last line of Docker's words about a failure, which doesn't say what failed."""
_NO_GPUS = re.compile("could not select device driver|GPU vendor|nvidia-container-cli")
"""Docker's words without NVIDIA's toolkit, without a GPU for CDI, and without a driver."""
_WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class DockerError(StartError):
    """A docker command failed. The message is Docker's."""


def limits(expected: Expected) -> list[str]:
    """Returns the options of `docker run` for the same shared memory and cores as in the pod."""
    memory = _SHARED_MEMORY if expected.shared_memory is None else expected.shared_memory
    return [f"--shm-size={memory}", *([f"--cpus={expected.cpus:g}"] if expected.cpus is not None else [])]


@contextlib.contextmanager
def started(
    repository: Path,
    expected: Expected,
    image: str = IMAGE,
    seconds: float = SECONDS,
    configs: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Start]:
    """Starts tritonserver on `repository`, which is mounted read-only, for use in a `with` statement.

    `configs`: other texts of config.pbtxt, by the model's directory.

    Waits until the server has tried to load each model, it exits, or `seconds` have passed. Stops the server at the
    end of the context. Raises DockerError.
    """
    name = f"triton-validate-{uuid.uuid4().hex[:12]}"
    with _volumes(repository.resolve(), configs) as volumes:
        server = [image_name(image), "tritonserver", *FIXED, *flags(expected)]
        try:
            _run(name, [*_PUBLISHED, *limits(expected), *volumes, *server], expected.gpus)
            start = _wait(name, seconds)
            yield replace(start, numpy=_numpy(name)) if start.address else start
        finally:
            with signals.ignored(), contextlib.suppress(DockerError):
                _remove(name)


@contextlib.contextmanager
def _volumes(repository: Path, configs: Mapping[str, str]) -> Iterator[list[str]]:
    """Returns the options of `docker run` for the repository, or for a view of it with `configs` as in the pod."""
    if not configs:
        yield [f"--volume={repository}:/models:ro"]
        return
    with tempfile.TemporaryDirectory(prefix="triton-validate-") as folder:
        Path(folder).chmod(0o755)  # so that the server's user can read it
        try:
            view.write(repository, Path(folder), view.REPOSITORY, configs)
        except OSError as error:  # a folder that can't be read, or a full disk
            raise DockerError(f"can't write config.pbtxt with the fields of spec.models: {error}") from None
        yield [f"--volume={folder}:/models:ro", f"--volume={repository}:{view.REPOSITORY}:ro"]


def _run(container: str, command: Sequence[str], gpus: int | None) -> None:
    """Starts a container, without GPUs where Docker has none."""
    run = "run", "--detach", f"--name={container}"
    try:
        docker(*run, *([f"--gpus={gpus}"] if gpus else []), *command)
    except DockerError as error:
        if not gpus or not _NO_GPUS.search(str(error)):
            raise
        click.echo(f"runs the server without GPUs, because Docker has none: {error}", err=True)
        _remove(container)
        docker(*run, *command)


def _remove(container: str) -> None:
    docker("rm", "--force", "--volumes", container)


def image_name(text: str) -> str:
    """Returns the name of an image. Raises DockerError for one that docker would take as an option."""
    if text.startswith("-"):
        raise DockerError(f"{text} is not the name of an image: it begins with a hyphen, as an option of docker does")
    return text


def _numpy(container: str) -> str:
    try:
        return docker("exec", container, "python3", "-c", "import numpy; print(numpy.__version__)")
    except DockerError:
        return ""


def docker(*arguments: str) -> str:
    """Runs a docker command. Returns its output. Raises DockerError, also if docker isn't installed."""
    try:
        process = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise DockerError(f"docker can't be run: {error.strerror}") from None
    if process.returncode:
        lines = (process.stderr or process.stdout).strip().splitlines()
        raise DockerError(next((line for line in reversed(lines) if line and not _HINT.match(line)), "docker failed"))
    return process.stdout.strip()


def logs(name: str) -> str:
    """Returns the container's log, at most the first MAX_LOG bytes."""
    with subprocess.Popen(["docker", "logs", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        log = cast(IO[bytes], process.stdout).read(MAX_LOG)
        process.kill()
    return log.decode(errors="replace")


def _inspect(name: str) -> tuple[bool, dict[str, str]]:
    """Returns whether the container runs, and host:port by port. Uses one command: the container may exit any time."""
    output = docker("inspect", "--format=[{{json .State.Running}}, {{json .NetworkSettings.Ports}}]", name)
    running, ports = json.loads(output)
    return running, {port: "{HostIp}:{HostPort}".format(**at[0]) for port, at in (ports or {}).items() if at}


def _wait(name: str, seconds: float) -> Start:
    deadline = time.monotonic() + seconds
    running, addresses, live = True, dict[str, str](), False
    while running and not live and time.monotonic() < deadline:
        running, addresses = _inspect(name)
        # Triton opens its ports after it has tried to load the models.
        live = running and _answers(f"http://{addresses.get(_HTTP)}/v2/health/live")
        if running and not live:
            time.sleep(0.25)
    ready = live and _answers(f"http://{addresses[_HTTP]}/v2/health/ready")
    if not running:
        docker("wait", name)  # the log may be incomplete until then
    text = logs(name)
    found = addresses if live else {}
    return Start(ready, not running, refusals(text), text, found.get(_HTTP, ""), grpc=found.get(_GRPC, ""))


def _answers(url: str) -> bool:
    try:
        # The URL of our container, on this machine.
        with _WITHOUT_PROXY.open(url, timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False
