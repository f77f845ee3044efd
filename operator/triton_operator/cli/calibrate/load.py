"""The commands of the load generator, and its answers. Pure: a result is untrusted text of a bounded length."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from triton_operator.api.text import one_line

from .search import Point, Step

MAX_BYTES = 1 << 20
"""Maximum size of an answer."""
_ERROR_CHARACTERS = 500
_DRAIN_SECONDS = 300
"""How long to wait for the answers of a measurement that didn't end in time."""
PORTS = {"http": 8000, "grpc": 8001}

Run = Callable[[Sequence[str], float], str]
"""Runs a command beside the server and returns its output. The second argument is the time limit in seconds."""


class LoadError(Exception):
    """The load generator can't work. The message is for the user."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent: requests to `model`, by `http` or `grpc`, with inputs from a file or, with "random", generated."""

    model: str
    protocol: str = "http"
    inputs: str = "random"
    url: str = ""

    def command(self, *options: str) -> list[str]:
        """Returns the command of one measurement."""
        url = self.url or f"127.0.0.1:{PORTS[self.protocol]}"
        fixed = [f"--model={self.model}", f"--url={url}", f"--protocol={self.protocol}", f"--input-data={self.inputs}"]
        return ["measure", *fixed, *options]


def config_command(load: Load) -> list[str]:
    """Returns the command that prints the model's configuration as JSON."""
    program = (
        "import sys, urllib.request, urllib.parse; "
        "url = f'http://127.0.0.1:8000/v2/models/{urllib.parse.quote(sys.argv[1], safe=str())}/config'; "
        f"print(urllib.request.urlopen(url, timeout=30).read({MAX_BYTES}).decode())"
    )
    return ["python", "-c", program, load.model]


def check_inputs(text: str, has_file: bool) -> None:
    """Raises LoadError if inputs can't be generated for the model with this configuration, or if it streams."""
    try:
        config = json.loads(text)
        inputs = [(str(i["name"]), str(i["data_type"]), [int(d) for d in i["dims"]]) for i in config["input"]]
        decoupled = bool((config.get("model_transaction_policy") or {}).get("decoupled"))
        sequences = "sequence_batching" in config
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LoadError(f"the server's configuration of the model can't be read: {error}") from None
    if decoupled:
        raise LoadError("the model is decoupled: it may send several responses, and this command measures one")
    if sequences:
        raise LoadError("the model processes sequences, which this command can't send")
    if has_file:
        return
    for name, kind, dims in inputs:
        if kind == "TYPE_STRING":
            why = "is a string, for example an image file, and random bytes would not be a valid one"
        elif any(d < 0 for d in dims):
            why = f"has no fixed shape ({', '.join(map(str, dims))})"
        else:
            continue
        raise LoadError(
            f"no inputs can be generated: the input {name} {why}. Give a file with inputs in perf_analyzer's JSON "
            "format: --input-data FILE"
        )


def latency(load: Load, run: Run) -> float:
    """Returns the latency of single requests to an idle server in seconds (P50). Raises LoadError."""
    found = _read(run(load.command("--requests=20"), 300))
    if found.failures or not 0 < found.p50 < math.inf:
        raise LoadError(f"the server answers no request: {found.error or 'perf_analyzer reports no latency'}")
    return found.p50


def measure(load: Load, run: Run, step: Step) -> Point:
    """Makes the measurement of a step. Raises LoadError if there is no result."""
    options = [f"--rate={step.rate!r}", f"--seconds={step.seconds!r}", f"--seed={step.number}"]
    found = _read(run(load.command(*options), 5 * step.seconds + 120))
    sent, took = step.rate if found.sent is None else found.sent, found.took
    if found.p99 == math.inf and not found.failures:
        # The server may still work on these requests. One more is answered after them.
        took += _read(run(load.command("--requests=1", f"--seconds={_DRAIN_SECONDS}"), _DRAIN_SECONDS + 120)).took
    return Point(step.phase, step.rate, sent, found.p50, found.p99, found.requests, found.failures, took, found.error)


@dataclass(frozen=True, slots=True)
class _Answer:
    sent: float | None
    p50: float
    p99: float
    requests: int
    failures: int
    took: float
    error: str


def _read(text: str) -> _Answer:
    last = text.strip().rpartition("\n")[2]
    try:
        found: dict[str, Any] = json.loads(last[:MAX_BYTES])
        sent = found.get("sent")
        return _Answer(
            None if sent is None else float(sent),
            _latency(found.get("p50")),
            _latency(found.get("p99")),
            int(found["requests"]),
            int(found["failures"]),
            float(found["took"]),
            one_line(str(found.get("error", "")))[:_ERROR_CHARACTERS],
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        shown = one_line(last)[-_ERROR_CHARACTERS:]
        raise LoadError(f"the load generator gave no result: {shown or '(no output)'}") from None


def _latency(value: Any) -> float:
    return math.inf if value is None else float(value)
