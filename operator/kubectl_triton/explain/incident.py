"""Reads from Prometheus what explains the alerts of one TritonModel: one query for each value."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kubectl_triton import samples
from kubectl_triton.samples import Alert, Series

HOUR, STEP = 3600, 60
"""Length of the curves, and the time between two points, in seconds."""
MAX_FIRING = 50
"""Maximum number of alerts that are read."""
_SHOWN_LABELS = ("version", "model", "pod", "reason", "kind")
Curve = list[tuple[float, float]]
"""(Unix time, value)."""


@dataclass(frozen=True)
class Firing:
    """A firing alert. `about`: its labels that name a part, such as `version 2`. `since`: Unix time, if known."""

    alert: Alert
    about: str = ""
    since: float | None = None


@dataclass(frozen=True)
class Panel:
    """What a picture shows: the value's name, its unit, and the PromQL of the value and of its limit (empty: none)."""

    name: str
    unit: str
    value: str
    limit: str = ""
    limit_name: str = ""


@dataclass(frozen=True)
class Numbers:
    """The numbers of one moment, and the curves of the last hour. A value that isn't known is missing.

    - `now`: by the names of `queries`; each is (what it is about, value), such as ("version 2", 12.5)
    - `value`, `limit`: the curves of the picture
    """

    now: Mapping[str, Sequence[tuple[str, float]]] = field(default_factory=dict)
    value: Curve = field(default_factory=list)
    limit: Curve = field(default_factory=list)


def selector(namespace: str, name: str) -> str:
    """Returns the matchers of the series of one TritonModel."""
    return f"namespace={json.dumps(namespace)},tritonmodel={json.dumps(name)}"


def firing(url: str, namespace: str, name: str) -> list[Firing]:
    """Returns the firing alerts, the critical ones first. Raises NoAnswerError."""
    of = selector(namespace, name)
    fires = f'ALERTS{{{of},alertstate="firing"}}'
    requests = {
        "alerts": {"query": f"topk({MAX_FIRING}, {fires})"},
        "since": {"query": f"topk({MAX_FIRING}, ALERTS_FOR_STATE{{{of}}} and ignoring (alertstate) {fires})"},
    }
    return samples.ask(url, requests, _firing)


def _firing(results: Mapping[str, Sequence[Series]]) -> list[Firing]:
    def key(series: Series) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((k, str(v)) for k, v in series["metric"].items() if k not in ("alertstate", "__name__")))

    since = {key(series): float(series["value"][1]) for series in results["since"]}
    firings = [
        Firing(
            Alert(samples.word(series["metric"]["alertname"]), samples.word(series["metric"].get("severity", ""))),
            about(series["metric"]),
            since.get(key(series)),
        )
        for series in results["alerts"]
    ]
    return sorted(firings, key=lambda f: (samples.urgency(f.alert), f.about))


def about(labels: Mapping[str, str]) -> str:
    """Returns the labels that name a part of the TritonModel as words."""
    return samples.word(", ".join(f"{name} {labels[name]}" for name in _SHOWN_LABELS if labels.get(name)))


def queries(namespace: str, name: str) -> dict[str, str]:
    """Returns the PromQL of each of `Numbers.now`."""
    of = selector(namespace, name)
    return {
        "demand": f'tritonmodel:demand:rate1m{{{of}}}',
        "thresholds": f"tritonmodel:threshold:effective{{{of}}}",
        "load": f"tritonmodel:load_replicas:max{{{of}}}",
        "queue": f"tritonmodel:queue_duration_seconds:avg1m{{{of}}}",
        "errors": f"tritonmodel:error_ratio:rate5m{{{of}}}",
        "wanted": f"tritonmodel:servers:desired{{{of}}}",
        "ready": f"tritonmodel:servers:ready{{{of}}}",
    }  # fmt: skip


def numbers(url: str, namespace: str, name: str, panel: Panel, now: float) -> Numbers:
    """Returns the numbers of now, and the curves of the hour before `now` (Unix time). Raises NoAnswerError."""
    requests: dict[str, Mapping[str, str]] = {
        key: {"query": f"topk({MAX_FIRING}, {query})"} for key, query in queries(namespace, name).items()
    }
    hour = {"start": f"{now - HOUR:.0f}", "end": f"{now:.0f}", "step": str(STEP)}
    requests["value curve"] = {"query": f"max({panel.value})", **hour}
    if panel.limit:
        requests["limit curve"] = {"query": f"max({panel.limit})", **hour}

    def read(results: Mapping[str, Sequence[Series]]) -> Numbers:
        values = {key: _values(results[key]) for key in queries(namespace, name)}
        return Numbers(values, _curve(results["value curve"]), _curve(results.get("limit curve", ())))

    return samples.ask(url, requests, read)


def _values(result: Sequence[Series]) -> list[tuple[str, float]]:
    pairs = [(about(series["metric"]), float(series["value"][1])) for series in result]
    return sorted((part, value) for part, value in pairs if math.isfinite(value))


def _curve(result: Sequence[Series]) -> Curve:
    points = [(float(at), float(value)) for series in result[:1] for at, value in series["values"]]
    return [(at, value) for at, value in points if math.isfinite(value)]
