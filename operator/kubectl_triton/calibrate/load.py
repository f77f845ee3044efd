"""The commands of the load generator, and its answers. Pure: a result is untrusted text of a bounded length."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_repository_check.text import one_line

from .search import LATENCY, NAMES, TPOT, TTFT, UNANSWERED, Goal, Latency, Point, Step

MAX_BYTES = 1 << 20
"""Maximum size of an answer."""
_ERROR_CHARACTERS = 500
_DRAIN_SECONDS = 300
"""How long to wait for the answers of a measurement that didn't end in time."""
_SINGLE_REQUESTS, _SINGLE_STREAMS = 20, 5
"""How many requests are sent one after the other to an idle server."""
_IDLE_SECONDS = 240
"""Time for these requests."""
_NONE = Latency(0.0, 0.0)
PORTS = {"http": 8000, "grpc": 8001}

Run = Callable[[Sequence[str], float], str]
"""Runs a command beside the server and returns its output. The second argument is the time limit in seconds."""


class LoadError(Exception):
    """The load generator can't work. The message is for the user."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent: requests to `model`, by `http` or `grpc`, with inputs from a file or, with "random", generated.

    `streams`: each request has several responses. It needs `grpc`.
    """

    model: str
    protocol: str = "http"
    inputs: str = "random"
    url: str = ""
    streams: bool = False

    def command(self, *options: str) -> list[str]:
        """Returns the command of one measurement."""
        url = self.url or f"127.0.0.1:{PORTS[self.protocol]}"
        fixed = [f"--model={self.model}", f"--url={url}", f"--protocol={self.protocol}", f"--input-data={self.inputs}"]
        return ["measure", *fixed, *(["--streaming"] if self.streams else []), *options]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the load generator measured: the fields of a Point. No `sent`: no request was late."""

    sent: float | None
    latencies: Mapping[str, Latency]
    requests: int
    failures: int
    took: float
    error: str = ""
    responses: int = 0


def config_command(load: Load) -> list[str]:
    """Returns the command that prints the model's configuration as JSON."""
    program = (
        "import sys, urllib.request, urllib.parse; "
        "url = f'http://127.0.0.1:8000/v2/models/{urllib.parse.quote(sys.argv[1], safe=str())}/config'; "
        f"print(urllib.request.urlopen(url, timeout=30).read({MAX_BYTES}).decode())"
    )
    return ["python", "-c", program, load.model]


def check_inputs(text: str, has_file: bool, streams: bool = False) -> None:
    """Raises LoadError if inputs can't be generated for the model with this configuration, or if it can't be measured.

    `streams`: the targets are those of a model that streams.
    """
    try:
        config = json.loads(text)
        inputs = [(str(i["name"]), str(i["data_type"]), [int(d) for d in i["dims"]]) for i in config["input"]]
        decoupled = bool((config.get("model_transaction_policy") or {}).get("decoupled"))
        sequences = "sequence_batching" in config
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LoadError(f"the server's configuration of the model can't be read: {error}") from None
    if decoupled and not streams:
        raise LoadError("the model is decoupled: it streams responses, so give --ttft, --tpot or both instead of --p99")
    if streams and not decoupled:
        raise LoadError("the model isn't decoupled: it sends one response, so give --p99 instead of --ttft and --tpot")
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


def idle(load: Load, run: Run) -> Measurement:
    """Returns the measurement of single requests to an idle server. Raises LoadError if they aren't answered."""
    requests = _SINGLE_STREAMS if load.streams else _SINGLE_REQUESTS
    options = f"--requests={requests}", f"--seconds={_IDLE_SECONDS}"
    answer = _read(run(load.command(*options), _IDLE_SECONDS + 60))
    if answer.failures or not 0 < answer.latencies.get(LATENCY, UNANSWERED).p50 < math.inf:
        raise LoadError(f"the server answers no request: {answer.error or 'perf_analyzer reports no latency'}")
    return answer


def impossible(goal: Goal, single: Measurement) -> str:
    """Returns why no rate can meet the targets if single requests to an idle server have this result; "" if one may."""
    for kind, target in goal.targets.items():
        if kind not in single.latencies:
            return f"there is no {NAMES[kind]}, as each request had one response: do the inputs ask for a stream?"
        latency = single.latencies[kind].p50
        if latency > target:
            return f"one request at a time has a {NAMES[kind]} of {latency * 1000:.3g} ms, longer than the target"
    return ""


def answer_seconds(goal: Goal, single: Measurement) -> float:
    """Returns how long a stream lasts at the targets, in seconds; 0 for a model with one response.

    `single`: the measurement of single requests. It replaces a target that isn't given.
    """
    if not single.responses:
        return 0.0
    first, later = (goal.targets.get(kind) or single.latencies.get(kind, _NONE).p50 for kind in (TTFT, TPOT))
    return first + later * (single.responses / single.requests - 1)


def measure(load: Load, run: Run, step: Step) -> Point:
    """Makes the measurement of a step. Raises LoadError if there is no result."""
    options = [f"--rate={step.rate!r}", f"--seconds={step.seconds!r}", f"--seed={step.number}"]
    answer = _read(run(load.command(*options), 5 * step.seconds + 120))
    sent, took = step.rate if answer.sent is None else answer.sent, answer.took
    if not answer.latencies and not answer.failures:
        # The server may still work on these requests. One more is answered after them.
        took += _read(run(load.command("--requests=1", f"--seconds={_DRAIN_SECONDS}"), _DRAIN_SECONDS + 120)).took
    return Point(
        step.phase, step.rate, sent, answer.latencies, answer.requests, answer.failures, took, answer.error,
        answer.responses,
    )  # fmt: skip


def _read(text: str) -> Measurement:
    last = text.strip().rpartition("\n")[2]
    try:
        fields: dict[str, Any] = json.loads(last[:MAX_BYTES])
        sent = fields.get("sent")
        return Measurement(
            None if sent is None else float(sent),
            {kind: _latency(value) for kind, value in fields["latencies"].items() if kind in NAMES},
            int(fields["requests"]),
            int(fields["failures"]),
            float(fields["took"]),
            one_line(str(fields.get("error", "")))[:_ERROR_CHARACTERS],
            int(fields.get("responses", 0)),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        excerpt = one_line(last)[-_ERROR_CHARACTERS:]
        raise LoadError(f"the load generator gave no result: {excerpt or '(no output)'}") from None


def _latency(quantiles: Any) -> Latency:
    return Latency(float(quantiles["p50"]), float(quantiles["p99"]))
