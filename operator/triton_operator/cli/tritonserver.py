"""Starts tritonserver in Docker on a repository, and reads its errors."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_operator.repository.findings import Finding, Severity
from triton_operator.repository.rules.base import Expected

IMAGE = "nvcr.io/nvidia/tritonserver:24.10-py3"
SECONDS = 120.0
"""Default timeout until all models are ready."""

_POLL = re.compile(r"Poll failed for model directory '(?P<model>[^']*)': (?P<reason>.*)")
_LOAD = re.compile(r"failed to load (?:model )?'(?P<model>[^']*)'(?: version \d+)?: (?P<reason>.*)")
_ENSEMBLE = re.compile(r"Invalid argument: (?P<reason>(?:in )?ensemble '?(?P<model>[^ ,']+)'?.*)")
_PARSER = re.compile(r"Error parsing text-format \S+: (?P<reason>\d+:\d+: .*)")
_FOLLOWS = re.compile(r"depends on '.*' which has no loaded version|contains models that are not available")
_LINE = re.compile(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+\] ?\"?")
_REASON = 600
"""Maximum length of a reason."""


class DockerError(Exception):
    """A docker command failed. The message is Docker's."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The server's error for a model that it doesn't serve."""

    model: str
    """Empty if the server doesn't name it."""
    reason: str
    early: bool
    """Whether the server reported it when it read the configuration, before it loaded models."""


@dataclass(frozen=True, slots=True)
class Start:
    """The result of a start."""

    ready: bool
    """Whether all models were ready in time."""
    ended: bool
    """Whether the server exited. If it is neither ready nor ended, it hangs."""
    refusals: tuple[Refusal, ...]
    """The first error of each model, without errors that are consequences of others."""
    log: str
    address: str = ""
    """host:port of the server's HTTP endpoint."""


def flags(wanted: Expected) -> list[str]:
    """Returns the options of tritonserver for the same configuration as in the pod."""
    cache = ["--cache-config=local,size=1048576"] if wanted.response_cache else []
    control = ["--model-control-mode=explicit"] if wanted.load_models else []
    return [*cache, *control, *(f"--load-model={name}" for name in wanted.load_models)]


def limits(wanted: Expected) -> list[str]:
    """Returns the options of `docker run` for the same limits as in the pod."""
    memory = [f"--shm-size={wanted.shared_memory}"] if wanted.shared_memory is not None else []
    return [*memory, *([f"--cpus={wanted.cpus:g}"] if wanted.cpus is not None else [])]


@contextlib.contextmanager
def started(repository: Path, wanted: Expected, image: str = IMAGE, seconds: float = SECONDS) -> Iterator[Start]:
    """Starts tritonserver on `repository`, which is mounted read-only, for use in a `with` statement.

    Waits until the models are ready, the server exits, or `seconds` have passed. Stops the server at the end of the
    context. Raises DockerError.
    """
    name = f"triton-validate-{uuid.uuid4().hex[:12]}"
    command = [
        *("run", "--detach", f"--name={name}", "--publish=127.0.0.1:0:8000", *limits(wanted)),
        *(f"--volume={repository.resolve()}:/models:ro", image, "tritonserver", "--model-repository=/models"),
        *flags(wanted),
    ]
    try:
        docker(*command)
        yield _wait(name, seconds)
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", name], capture_output=True, check=False)


def docker(*arguments: str) -> str:
    """Runs a docker command. Returns its output. Raises DockerError, also if docker isn't installed."""
    try:
        done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise DockerError(f"docker can't be run: {error.strerror}") from None
    if done.returncode:
        raise DockerError((done.stderr or done.stdout).strip().split("\n")[-1])
    return done.stdout.strip()


def logs(name: str) -> str:
    """Returns the container's log."""
    done = subprocess.run(["docker", "logs", name], capture_output=True, text=True, check=False, errors="replace")
    return done.stdout + done.stderr


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
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - the URL of our container
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False


def refusals(log: str) -> tuple[Refusal, ...]:
    """Returns the first error of each model in the log. Leaves out errors that are consequences of others."""
    found: dict[str, Refusal] = {}
    parser = ""
    loading = False
    for line in log.splitlines():
        if match := _PARSER.search(line):
            parser = match["reason"]
        text = _LINE.sub("", line).removesuffix('"')
        loading = loading or text.startswith("loading: ")
        if match := _POLL.search(text):
            reason = f"{match['reason']}: {parser}" if parser and "text proto" in text else match["reason"]
            parser = ""
            found.setdefault(match["model"], Refusal(match["model"], reason[:_REASON], early=True))
        elif (match := _LOAD.search(text)) or ((match := _ENSEMBLE.search(text)) and not _FOLLOWS.search(text)):
            found.setdefault(match["model"], Refusal(match["model"], match["reason"][:_REASON], early=not loading))
    if not found and (match := _ENSEMBLE.search(log)):
        found[match["model"]] = Refusal(match["model"], match["reason"][:_REASON].rstrip('"'), early=not loading)
    return tuple(found.values())


def findings(start: Start, models: Sequence[str], image: str, seconds: float = SECONDS) -> tuple[Finding, ...]:
    """Returns the errors of a start as findings. `models` are the directories of the repository."""
    if start.ready:
        return ()
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
