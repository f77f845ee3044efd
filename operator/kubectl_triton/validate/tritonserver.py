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

from kubectl_triton.trial import messages
from triton_repository_check import server_flags, view
from triton_repository_check.expected import Expected
from triton_repository_check.findings import Finding, Severity
from triton_repository_check.text import one_line

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
_SHARED_MEMORY = 1 << 30
"""Size of /dev/shm in bytes if none is known. Docker's own default is too small for some models."""
# As in a pod, a model that doesn't load doesn't end the server. In explicit mode models can be unloaded.
_FIXED = ("--model-repository=/models", "--model-control-mode=explicit", "--exit-on-error=false")
_LAST_NUMPY_1 = 51
"""The last server that was seen to need numpy 1."""
_HTTP, _GRPC = "8000/tcp", "8001/tcp"
_PUBLISHED = tuple(f"--publish=127.0.0.1:0:{port.partition('/')[0]}" for port in (_HTTP, _GRPC))
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
    - `trace`: the traceback of a model's program; "" without.
    """

    model: str
    reason: str
    early: bool
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """The result of a start.

    - `ready`: whether all models are ready.
    - `ended`: whether the server exited.
    - `refusals`: the first error of each model, without errors that are consequences of others.
    - `address`: host:port of the server's HTTP endpoint; "" if the server doesn't answer. `grpc`: of gRPC.
    - `numpy`: the version of numpy in a server that answers; empty if it has none.
    """

    ready: bool
    ended: bool
    refusals: tuple[Refusal, ...]
    log: str
    address: str = ""
    numpy: str = ""
    grpc: str = ""


def flags(expected: Expected) -> list[str]:
    """Returns the options of tritonserver for the same configuration as in the pod."""
    settings = server_flags.arguments(expected.flags) if expected.flags else []
    return [*settings, *(f"--load-model={name}" for name in expected.load_models or ("*",))]


def limits(expected: Expected) -> list[str]:
    """Returns the options of `docker run` for the same limits as in the pod."""
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
        command = [
            *("run", "--detach", f"--name={name}", *_PUBLISHED, *limits(expected), *volumes),
            *(image_name(image), "tritonserver", *_FIXED, *flags(expected)),
        ]
        try:
            docker(*command)
            start = _wait(name, seconds)
            yield replace(start, numpy=_numpy(name)) if start.address else start
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
            errors.setdefault(match["model"], _refusal(match["model"], reason, early=True))
        elif (match := _LOAD.search(text)) or ((match := _ENSEMBLE.search(text)) and not _FOLLOWS.search(text)):
            errors.setdefault(match["model"], _refusal(match["model"], match["reason"], early=not loading))
    if not errors and (match := next(filter(None, map(_ENSEMBLE.search, log.splitlines())), None)):
        errors[match["model"]] = _refusal(match["model"], match["reason"].rstrip('"'), early=not loading)
    return tuple(errors.values())


def _refusal(model: str, reason: str, *, early: bool) -> Refusal:
    # The log has the lines of a message in one.
    head, separator, trace = reason.replace("\\n", "\n").partition("\n\nAt:\n")
    return Refusal(model, one_line(head.strip())[:_REASON], early, separator + trace)


def findings(
    start: Start, models: Sequence[str], image: str, seconds: float = SECONDS, *, programs: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Returns the errors of a start as findings.

    `models` are the directories of the repository; `programs` those of them that the python backend runs.
    """
    return (*_not_loaded(start, models, image, seconds), *_too_new(start, programs))


def _not_loaded(start: Start, models: Sequence[str], image: str, seconds: float) -> Iterator[Finding]:
    for refusal in start.refusals:
        file, line = messages.place(refusal.trace, models)
        yield Finding(
            "TR901",
            Severity.ERROR,
            file or (refusal.model if refusal.model in models else "."),
            line,
            None,
            f"tritonserver rejects {refusal.model!r}: {refusal.reason}",
            "correct this line"
            if file
            else f"see the other findings, or run tritonserver yourself with docker run {image}",
        )
    if start.refusals or start.ready:
        return
    last = next((line for line in reversed(start.log.splitlines()) if line.strip()), "(empty)")
    what = "exited" if start.ended else f"isn't ready after {seconds:g} s"
    yield Finding(
        "TR902",
        Severity.ERROR,
        ".",
        None,
        None,
        f"tritonserver {what}; last line of its log: {last[:_REASON]}",
        "make sure that the image contains all packages of the models, or raise the timeout with --seconds",
    )


def _too_new(start: Start, programs: Collection[str]) -> Iterator[Finding]:
    version = _SERVER_VERSION.search(start.log)
    if programs and start.numpy.startswith("2.") and version is not None and int(version[1]) <= _LAST_NUMPY_1:
        yield Finding(
            "TR903",
            Severity.ERROR,
            min(programs),
            None,
            None,
            f"the image has numpy {start.numpy}, with which server {version[0]} passes empty tensors to and from "
            "Python models, without an error",
            'install "numpy<2" in the server image, and packages that take it',
        )
