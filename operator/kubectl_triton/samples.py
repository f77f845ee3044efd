"""Reads samples of all TritonModels from Prometheus: one query for each value."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlencode

from triton_repository_check.text import one_line

SECONDS, MAX_BYTES = 5.0, 4 << 20
"""Limits of one query. The queries run at the same time."""
MAX_ALERTS = 20
"""Maximum number of alerts of one TritonModel."""
_WORD_MAX = 100
Key = str
"""namespace/name of a TritonModel."""
Series = dict[str, Any]
"""One series of a query result."""
T = TypeVar("T")
_BY = "namespace,tritonmodel"
_ENTRY = "and on (namespace,tritonmodel,model,version) tritonmodel:requests_served:rate1m"
_QUANTILE = (
    'max by ({by}) (tritonmodel:stream_duration_seconds:quantile1m{{{of},quantile="{q}"}} '
    "and on (namespace,tritonmodel,model) tritonmodel:requests_served:rate1m "
    'or on (namespace,tritonmodel) tritonmodel:request_duration_seconds:quantile5m{{{of},quantile="{q}"}} '
    "and on (namespace,tritonmodel,model) tritonmodel:requests_served:rate1m "
    'or on (namespace,tritonmodel) nv_inference_request_summary_us{{{of},quantile="{q}"}} / 1e6 {entry} '
    "unless on (namespace,tritonmodel,model) tritonmodel:decoupled:info{{{of}}})"
)
"""The duration of the entry model's streams, or its latency over all servers if that is measured, or Triton's summary.
Triton doesn't measure streams."""


class NoAnswerError(Exception):
    """Prometheus gave no usable answer. The message is for the user, as one line."""


@dataclass(frozen=True)
class Alert:
    """A firing alert."""

    name: str
    severity: str


@dataclass(frozen=True)
class Samples:
    """The samples of one moment, by TritonModel. A value that isn't known is missing.

    - `demand`: requests/s; `load`: number of servers at full use
    - `p50`, `p99`: latency of the entry model, or of its streams, over all servers; on the slowest one if it isn't
      measured (spec.monitoring.latency); in seconds
    - `queue`: mean time in the queue of the slowest model, in seconds; `errors`: share of failed requests, 0 to 1
    - `alerts`: the alerts that fire, critical ones first; None without an answer
    - `error`: why there is no answer, as one line
    """

    demand: Mapping[Key, float] = field(default_factory=dict)
    load: Mapping[Key, float] = field(default_factory=dict)
    p50: Mapping[Key, float] = field(default_factory=dict)
    p99: Mapping[Key, float] = field(default_factory=dict)
    queue: Mapping[Key, float] = field(default_factory=dict)
    errors: Mapping[Key, float] = field(default_factory=dict)
    alerts: Mapping[Key, tuple[Alert, ...]] | None = None
    error: str = ""


def queries(namespace: str | None) -> dict[str, str]:
    """Returns the PromQL of each field of Samples. `namespace`: None means all."""
    of = 'tritonmodel!=""' + (f",namespace={json.dumps(namespace)}" if namespace else "")
    return {
        "demand": f'max by ({_BY}) (tritonmodel:demand:rate1m{{{of},version=""}})',
        "load": f"max by ({_BY}) (tritonmodel:load_replicas:max{{{of}}})",
        "p50": _QUANTILE.format(by=_BY, of=of, q="0.5", entry=_ENTRY),
        "p99": _QUANTILE.format(by=_BY, of=of, q="0.99", entry=_ENTRY),
        "queue": f"max by ({_BY}) (tritonmodel:queue_duration_seconds:avg1m{{{of}}})",
        "errors": f"max by ({_BY}) (tritonmodel:error_ratio:rate5m{{{of}}})",
        "alerts": f'count by ({_BY},alertname,severity) (ALERTS{{{of},alertstate="firing"}})',
    }


def read(url: str, namespace: str | None) -> Samples:
    """Returns the samples of the Prometheus at this URL. Blocks for at most SECONDS."""
    try:
        return ask(url, {name: {"query": query} for name, query in queries(namespace).items()}, of)
    except NoAnswerError as error:
        return Samples(error=str(error))


def ask(url: str, requests: Mapping[str, Mapping[str, str]], read: Callable[[Mapping[str, list[Series]]], T]) -> T:
    """Returns what `read` makes of the results of these queries. Blocks for at most SECONDS.

    - `requests`: the parameters of each query by its name; with `start`, `end` and `step` it is a range query

    Raises NoAnswerError, also if `read` can't read a result.
    """
    from triton_operator.probe.fetch import FetchError  # the import of the HTTP client takes a tenth of a second

    # Also where a character of the password isn't encoded, and ends the name of the host.
    scheme, slashes, rest = url.partition("//")
    address = f"{scheme}{slashes}{rest.rpartition('@')[2]}"
    urls = [
        f"{url.rstrip('/')}/api/v1/{'query_range' if 'step' in parameters else 'query'}?{urlencode(parameters)}"
        for parameters in requests.values()
    ]
    try:
        bodies = asyncio.run(_fetch_all(urls))
        return read(dict(zip(requests, map(_result, bodies), strict=True)))
    except FetchError as error:
        raise NoAnswerError(one_line(f"no answer from Prometheus at {address}: {error}"[:300])) from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise NoAnswerError(one_line(f"the server at {address} is not a Prometheus"[:300])) from None


def of(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> Samples:
    """Returns the samples of the results of `queries`."""
    values = {name: _values(result) for name, result in results.items() if name != "alerts"}
    return Samples(
        values["demand"],
        values["load"],
        values["p50"],
        values["p99"],
        values["queue"],
        values["errors"],
        _alerts(results["alerts"]),
    )


async def _fetch_all(urls: Sequence[str]) -> list[bytes]:
    from triton_operator.probe.fetch import HttpClient, Limits, fetch

    limits = Limits(total_seconds=SECONDS, body_bytes=MAX_BYTES)
    http = HttpClient()
    return await asyncio.gather(*(fetch(http, "GET", url, limits) for url in urls))


def _result(body: bytes) -> list[Series]:
    result = json.loads(body)["data"]["result"]
    if not isinstance(result, list):
        raise TypeError
    return result


def _values(result: Sequence[Mapping[str, Any]]) -> dict[Key, float]:
    values = {_key(series["metric"]): float(series["value"][1]) for series in result}
    return {key: value for key, value in values.items() if math.isfinite(value)}


def _alerts(result: Sequence[Mapping[str, Any]]) -> dict[Key, tuple[Alert, ...]]:
    alerts: dict[Key, set[Alert]] = {}
    for series in result:
        labels = series["metric"]
        alert = Alert(word(labels["alertname"]), word(labels.get("severity", "")))
        alerts.setdefault(_key(labels), set()).add(alert)
    return {key: tuple(sorted(group, key=urgency)[:MAX_ALERTS]) for key, group in alerts.items()}


def urgency(alert: Alert) -> tuple[int, str]:
    """Returns the order of alerts: critical ones first."""
    order = {"critical": 0, "warning": 1, "info": 2}
    return order.get(alert.severity, 1), alert.name


def word(text: str) -> str:
    """Returns a label's value as one short line."""
    return one_line(text[:_WORD_MAX])


def _key(labels: Mapping[str, str]) -> Key:
    return f"{labels['namespace']}/{labels['tritonmodel']}"
