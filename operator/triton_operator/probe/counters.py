"""Reads the counters and gauges of a Triton server from its metrics.

Only the lines that are needed, with expressions that take linear time: a page may be large, or written by a stranger.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from triton_operator.api.monitoring import Series
from triton_operator.api.series import CANCELED
from triton_operator.api.servers import Counters, ServerCounters, Subject

from .fetch import FetchError, HttpClient, Limits, fetch
from .polls import PATIENCE_SECONDS

_log = logging.getLogger(__name__)

LIMITS = Limits(connect_seconds=1.0, total_seconds=PATIENCE_SECONDS, body_bytes=1 << 20)
"""A server under the load that needs more servers may take seconds for its metrics. The time is shorter than the one
after which a server counts as silent (scaling/demand.py)."""
_MAX_LINES, _MAX_LINE_BYTES = 2000, 4096
_FIELDS = {
    "nv_inference_request_success": "success",
    "nv_inference_request_failure": "failure",
    "nv_inference_pending_request_count": "pending",
    "nv_inference_request_duration_us": "microseconds",
}
_COUNTED = (*_FIELDS.values(), "canceled")
_NAME, _TEXT = "[a-zA-Z_][a-zA-Z0-9_]*", r'(?:[^"\\]|\\.)*'
_LINE = re.compile(rf'(?:\{{((?:{_NAME}="{_TEXT}"(?:, *)?)*)\}})? +(\S+)(?: +-?[0-9]+)? *')
"""A line after the name of its metric: labels, value, and perhaps a time."""
_LABEL = re.compile(rf'(?<![a-zA-Z0-9_])({_NAME})="({_TEXT})"')
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True)
class Line:
    """A line of a page, as Prometheus reads it."""

    metric: str
    labels: Mapping[str, str]
    value: float

    @property
    def is_count(self) -> bool:
        return math.isfinite(self.value) and self.value >= 0


async def counters(client: HttpClient, address: str, subject: Subject) -> ServerCounters:
    """Returns the counters of `subject` from the metrics at `address` (host:port).

    Sums over versions and failure reasons, and tokens and streams over all labels. The cache is the fullest one. A
    model that the server doesn't report is missing. Raises FetchError.
    """
    page = await fetch(client, "GET", f"http://{address}/metrics", LIMITS)
    with client.taking_time():
        return parse(page, subject)


def parse(page: bytes, subject: Subject) -> ServerCounters:
    """Returns the same from a page, which may not be Triton's. Raises FetchError."""
    models = {subject.entrypoint, *subject.steps}
    sums: dict[str, dict[str, float]] = {}
    for line in lines(page, _FIELDS):
        if (model := line.labels.get("model", "")) in models:
            if not line.is_count:
                raise FetchError(f"not Triton's metrics: {line.metric} is {line.value}"[:300])
            field, counts = _FIELDS[line.metric], sums.setdefault(model, dict.fromkeys(_COUNTED, 0.0))
            counts[field] += line.value
            if field == "failure" and line.labels.get("reason") == CANCELED:
                counts["canceled"] += line.value
    tokens, streams, cache = (_values(page, named) for named in (subject.tokens, subject.streams, subject.cache))
    models_counters = {model: Counters(**counts) for model, counts in sums.items()}
    return ServerCounters(models_counters, sum(tokens), sum(streams), max(cache, default=0.0))


def _values(page: bytes, series: tuple[Series, ...]) -> list[float]:
    """Returns the values of these series; NaN if they can't be read, because the requests count anyway."""
    try:
        found = lines(page, [name for one in series for name in one.names])
    except FetchError as error:
        _log.debug("no such series: %s", error)
        return [math.nan]
    wanted = [
        line
        for line in found
        if any(line.metric in one.names and {*one.labels} <= line.labels.items() for one in series)
    ]
    return [line.value for line in wanted] if all(line.is_count for line in wanted) else [math.nan]


def lines(page: bytes, metrics: Iterable[str]) -> list[Line]:
    """Returns the lines of these metrics on a page. Raises FetchError."""
    # So that the first line is after a line feed, too.
    page, found = b"\n" + page, list[Line]()
    for metric in dict.fromkeys(metrics):
        for rest in _rests(page, metric.encode()):
            if len(found) == _MAX_LINES:
                raise FetchError(f"the metrics have more than {_MAX_LINES} lines of {', '.join(metrics)}"[:300])
            found.append(_line(metric, rest))
    return found


def _rests(page: bytes, metric: bytes) -> Iterator[bytes]:
    """Yields the lines of a metric, each without its name."""
    start = b"\n" + metric
    found = page.find(start)
    while found >= 0:
        name_end = found + len(start)
        end = page.find(b"\n", name_end)
        end = len(page) if end < 0 else end
        if page[name_end : name_end + 1] in (b"{", b" "):
            yield page[name_end:end]
        found = page.find(start, end)


def _line(metric: str, rest: bytes) -> Line:
    if len(rest) > _MAX_LINE_BYTES:
        raise FetchError(f"not Triton's metrics: a line of {metric} has more than {_MAX_LINE_BYTES >> 10} KiB"[:300])
    try:
        found = _LINE.fullmatch(rest.decode())
        if found is None:
            raise ValueError(metric)
        labels = {name: _ESCAPED.sub(_unescaped, text) for name, text in _LABEL.findall(found[1] or "")}
        return Line(metric, labels, float(found[2]))
    except ValueError:
        raise FetchError(f"not Triton's metrics: a line of {metric} can't be read"[:300]) from None


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
