"""Starts tritonserver in Docker on a repository, and reads its errors."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import IO, cast

from triton_repository_check import server_flags, view
from triton_repository_check.expected import Expected
from triton_repository_check.findings import Finding, Severity

CODES = {
    "TR901": "tritonserver rejects the model (--with-server)",
    "TR902": "tritonserver does not become ready (--with-server)",
    "TR903": "the server image's numpy is too new for Python models (--with-server)",
}

IMAGE = "nvcr.io/nvidia/tritonserver:24.10-py3"
SECONDS = 120.0
"""Default timeout until all models are ready."""

_POLL = re.compile(r"Poll failed for model directory '(?P<model>[^']*)': (?P<reason>.*)")
_LOAD = re.compile(r"failed to load (?:model )?'(?P<model>[^']*)'(?: version \d+)?: (?P<reason>.*)")
_ENSEMBLE = re.compile(r"Invalid argument: (?P<reason>(?:in )?ensemble '?(?P<model>[^ ,']+)'?.*)")
_PARSER = re.compile(r"Error parsing text-format \S+: (?P<reason>\d+:\d+: .*)")
_FOLLOWS = re.compile(r"depends on '.*' which has no loaded version|contains models that are not available")
_LINE = re.compile(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+\] ?\"?")
_SERVER_VERSION = re.compile(r"(?<=\| )2\.(\d+)\.\d+(?= +\|)")
_LAST_NUMPY_1 = 51
"""The last server that was seen to need numpy 1."""
_REASON = 600
"""Maximum length of a reason."""
MAX_LOG = 64 << 20
"""Maximum length of a log in bytes: the errors of a start are at its beginning."""
_LINE_CHARACTERS = 4096
"""Maximum length of a line of the log that is read."""
_WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class DockerError(Exception):
    """A docker command failed. The message is Docker's."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The server's error for a model that it doesn't serve.

    - `model`: empty if the server doesn't name it.
    - `early`: whether the server reported it when it read the configuration, before it loaded models.
    """

    model: str
    reason: str
    early: bool


@dataclass(frozen=True, slots=True)
class Start:
    """The result of a start.

    - `ready`: whether all models were ready in time.
    - `ended`: whether the server exited. If it is neither ready nor ended, it hangs.
    - `refusals`: the first error of each model, without errors that are consequences of others.
    - `address`: host:port of the server's HTTP endpoint.
    - `numpy`: the version of numpy in a server that is ready; empty if it has none.
    """

    ready: bool
    ended: bool
    refusals: tuple[Refusal, ...]
    log: str
    address: str = ""
    numpy: str = ""


def flags(expected: Expected) -> list[str]:
    """Returns the options of tritonserver for the same configuration as in the pod."""
    settings = server_flags.arguments(expected.flags) if expected.flags else []
    control = ["--model-control-mode=explicit"] if expected.load_models else []
    return [*settings, *control, *(f"--load-model={name}" for name in expected.load_models)]


def limits(expected: Expected) -> list[str]:
    """Returns the options of `docker run` for the same limits as in the pod."""
    memory = [f"--shm-size={expected.shared_memory}"] if expected.shared_memory is not None else []
    return [*memory, *([f"--cpus={expected.cpus:g}"] if expected.cpus is not None else [])]


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

    Waits until the models are ready, the server exits, or `seconds` have passed. Stops the server at the end of the
    context. Raises DockerError.
    """
    name = f"triton-validate-{uuid.uuid4().hex[:12]}"
    with _volumes(repository.resolve(), configs) as volumes:
        command = [
            *("run", "--detach", f"--name={name}", "--publish=127.0.0.1:0:8000", *limits(expected), *volumes),
            *(image_name(image), "tritonserver", "--model-repository=/models", *flags(expected)),
        ]
        try:
            docker(*command)
            start = _wait(name, seconds)
            yield replace(start, numpy=_numpy(name)) if start.ready else start
        finally:
            subprocess.run(["docker", "rm", "--force", "--volumes", name], capture_output=True, check=False)


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
        raise DockerError((process.stderr or process.stdout).strip().split("\n")[-1])
    return process.stdout.strip()


def logs(name: str) -> str:
    """Returns the container's log, at most the first MAX_LOG bytes."""
    with subprocess.Popen(["docker", "logs", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        log = cast(IO[bytes], process.stdout).read(MAX_LOG)
        process.kill()
    return log.decode(errors="replace")


def _inspect(name: str) -> tuple[bool, str]:
    """Returns whether the container runs, and its HTTP host:port. Uses one command: the container may exit any time."""
    output = docker("inspect", "--format=[{{json .State.Running}}, {{json .NetworkSettings.Ports}}]", name)
    running, ports = json.loads(output)
    published = (ports or {}).get("8000/tcp")
    return running, "{HostIp}:{HostPort}".format(**published[0]) if published else ""


def _wait(name: str, seconds: float) -> Start:
    deadline = time.monotonic() + seconds
    running, address, ready = True, "", False
    while running and not ready and time.monotonic() < deadline:
        running, address = _inspect(name)
        ready = running and _answers(f"http://{address}/v2/health/ready")
        if running and not ready:
            time.sleep(0.25)
    if not running:
        docker("wait", name)  # the log may be incomplete until then
    text = logs(name)
    return Start(ready, not running, refusals(text), text, address)


def _answers(url: str) -> bool:
    try:
        # The URL of our container, on this machine.
        with _WITHOUT_PROXY.open(url, timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False


def refusals(log: str) -> tuple[Refusal, ...]:
    """Returns the first error of each model in the log. Leaves out errors that are consequences of others."""
    errors: dict[str, Refusal] = {}
    parser = ""
    loading = False
    for line in (line[:_LINE_CHARACTERS] for line in log.splitlines()):
        if match := _PARSER.search(line):
            parser = match["reason"]
        text = _LINE.sub("", line).removesuffix('"')
        loading = loading or text.startswith("loading: ")
        if match := _POLL.search(text):
            reason = f"{match['reason']}: {parser}" if parser and "text proto" in text else match["reason"]
            parser = ""
            errors.setdefault(match["model"], Refusal(match["model"], reason[:_REASON], early=True))
        elif (match := _LOAD.search(text)) or ((match := _ENSEMBLE.search(text)) and not _FOLLOWS.search(text)):
            errors.setdefault(match["model"], Refusal(match["model"], match["reason"][:_REASON], early=not loading))
    if not errors and (match := next(filter(None, map(_ENSEMBLE.search, log.splitlines())), None)):
        errors[match["model"]] = Refusal(match["model"], match["reason"][:_REASON].rstrip('"'), early=not loading)
    return tuple(errors.values())


def findings(
    start: Start, models: Sequence[str], image: str, seconds: float = SECONDS, *, programs: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Returns the errors of a start as findings.

    `models` are the directories of the repository; `programs` those of them that the python backend runs.
    """
    if start.ready:
        version = _SERVER_VERSION.search(start.log)
        if not programs or not start.numpy.startswith("2.") or version is None or int(version[1]) > _LAST_NUMPY_1:
            return ()
        return (
            Finding(
                "TR903",
                Severity.ERROR,
                min(programs),
                None,
                None,
                f"the image has numpy {start.numpy}, with which server {version[0]} passes empty tensors to and from "
                "Python models, without an error",
                'install "numpy<2" in the server image, and packages that take it',
            ),
        )
    if start.refusals:
        return tuple(
            Finding(
                "TR901",
                Severity.ERROR,
                refusal.model if refusal.model in models else ".",
                None,
                None,
                f"tritonserver rejects {refusal.model!r}: {refusal.reason}",
                f"see the other findings, or run tritonserver yourself with docker run {image}",
            )
            for refusal in start.refusals
        )
    last = next((line for line in reversed(start.log.splitlines()) if line.strip()), "(empty)")
    what = "exited" if start.ended else f"isn't ready after {seconds:g} s"
    return (
        Finding(
            "TR902",
            Severity.ERROR,
            ".",
            None,
            None,
            f"tritonserver {what}; last line of its log: {last[:_REASON]}",
            "make sure that the image contains all packages of the models, or raise the timeout with --seconds",
        ),
    )
