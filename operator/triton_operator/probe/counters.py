"""Reads the counters and gauges of a Triton server from its metrics."""

from __future__ import annotations

import functools
import logging
import math
import re

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from triton_operator.api.monitoring import Series
from triton_operator.api.servers import Counters, ServerCounters, Subject

from .fetch import FetchError, HttpClient, Limits, fetch

_log = logging.getLogger(__name__)

LIMITS = Limits(connect_seconds=1.0, total_seconds=4.0, body_bytes=1 << 20)
"""A server under the load that needs more servers may take seconds for its metrics. The time is shorter than the one
after which a server counts as silent (scaling/demand.py)."""
_MAX_LINES = 2000
_FIELDS = {
    "nv_inference_request_success": "success",
    "nv_inference_request_failure": "failure",
    "nv_inference_pending_request_count": "pending",
}


async def counters(client: HttpClient, address: str, subject: Subject) -> ServerCounters:
    """Returns the counters of `subject` from the metrics at `address` (host:port).

    Sums over versions and failure reasons, and tokens and streams over all labels. The cache is the fullest one. A
    model that the server doesn't report is missing. Raises FetchError.
    """
    page = await fetch(client, "GET", f"http://{address}/metrics", LIMITS)
    series = (subject.tokens, subject.streams, subject.cache)
    # One search in the page, which may be large.
    body = _lines(page, (*_FIELDS, *(name for named in series for one in named for name in one.names)))
    models = {subject.entrypoint, *subject.steps}
    sums: dict[str, dict[str, float]] = {}
    for sample in _samples(body, tuple(_FIELDS)):
        if (model := sample.labels.get("model", "")) in models:
            if not _is_count(sample):
                raise FetchError(f"not Triton's metrics: {sample.name} is {sample.value}"[:300])
            counts = sums.setdefault(model, dict.fromkeys(_FIELDS.values(), 0.0))
            counts[_FIELDS[sample.name]] += sample.value
    tokens, streams, cache = (_values(body, named, address) for named in series)
    models_counters = {model: Counters(**counts) for model, counts in sums.items()}
    return ServerCounters(models_counters, sum(tokens), sum(streams), max(cache, default=0.0))


def _values(body: bytes, series: tuple[Series, ...], address: str) -> list[float]:
    """Returns the values of these series; NaN if they can't be read, because the requests count anyway."""
    if not series:
        return []
    try:
        samples = _samples(body, tuple(name for one in series for name in one.names))
    except FetchError as error:
        _log.debug("no such series from %s: %s", address, error)
        return [math.nan]
    wanted = [
        sample
        for sample in samples
        if any(sample.name in one.names and {*one.labels} <= sample.labels.items() for one in series)
    ]
    return [sample.value for sample in wanted] if all(map(_is_count, wanted)) else [math.nan]


def _is_count(sample: Sample) -> bool:
    return math.isfinite(sample.value) and sample.value >= 0


def _samples(body: bytes, metrics: tuple[str, ...]) -> list[Sample]:
    """Returns the samples of these metrics on a page. Raises FetchError."""
    lines = _lines(body, metrics)
    if lines.count(b"\n") > _MAX_LINES:
        raise FetchError(f"the metrics have more than {_MAX_LINES} lines of {', '.join(metrics)}")
    try:
        families = list(text_string_to_metric_families(lines.decode()))
    except ValueError as error:
        raise FetchError(f"not Triton's metrics: {error}"[:300]) from None
    samples = [sample for family in families for sample in family.samples]
    for sample in samples:
        if sample.name not in metrics:
            raise FetchError(f"not Triton's metrics: {sample.name}"[:300])
    return samples


def _lines(page: bytes, metrics: tuple[str, ...]) -> bytes:
    """Returns the lines of these metrics."""
    return b"".join(match[0] + b"\n" for match in _pattern(metrics).finditer(page))


@functools.lru_cache(maxsize=256)
def _pattern(metrics: tuple[str, ...]) -> re.Pattern[bytes]:
    """Returns the pattern of the lines of these metrics.

    Parsing every line of a server with many models would cost more than the request.
    """
    return re.compile(rf"^(?:{'|'.join(map(re.escape, metrics))})[{{ ][^\n]*$".encode(), re.MULTILINE)
