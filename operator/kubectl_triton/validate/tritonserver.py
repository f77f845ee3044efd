"""What tritonserver is started with, and what its log says. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from kubectl_triton.trial import messages
from triton_repository_check import server_flags
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
_REPOSITORY = re.compile(r"^E\d{4} \S+ \d+ model_repository_manager\.cc:\d+\] ?\"?(?P<reason>.*)")
_NOT_ALL = "failed to load all models"
_LINE = re.compile(r"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+\] ?\"?")
_SERVER_VERSION = re.compile(r"(?<=\| )2\.(\d+)\.\d+(?= +\|)")
# As in a pod, a model that doesn't load doesn't end the server. In explicit mode models can be unloaded.
FIXED = ("--model-repository=/models", "--model-control-mode=explicit", "--exit-on-error=false")
_LAST_NUMPY_1 = 51
"""The last server that was seen to need numpy 1."""
_REASON = 600
"""Maximum length of a reason."""
MAX_LOG = 64 << 20
"""Maximum length of a log in bytes: the errors of a start are at its beginning."""
_LINE_CHARACTERS = 4096
"""Maximum length of a line of the log that is read."""


class StartError(Exception):
    """The server can't be started, for a reason that isn't in the repository. The message is for the user."""


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
    if not errors and _NOT_ALL in log:
        # Of no one model, e.g. of one that isn't there. The server says that it is ready.
        lines = [line[:_LINE_CHARACTERS] for line in log.splitlines()]
        reasons = [match["reason"].rstrip('"') for match in map(_REPOSITORY.search, lines) if match] or [_NOT_ALL]
        return tuple(_refusal("", reason, early=not loading) for reason in dict.fromkeys(reasons))
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
        what = f"rejects {refusal.model!r}" if refusal.model else "loads not all models"
        yield Finding(
            "TR901",
            Severity.ERROR,
            file or (refusal.model if refusal.model in models else "."),
            line,
            None,
            f"tritonserver {what}: {refusal.reason}",
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
