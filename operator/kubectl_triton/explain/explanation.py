"""The text and the chart of `kubectl triton explain-alert`. Pure."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kubectl_triton import charts
from kubectl_triton.samples import Samples
from kubectl_triton.top import detail, fleet
from triton_operator.api import names
from triton_operator.api.status import status_of
from triton_operator.api.thresholds import ThresholdKey
from triton_repository_check.text import one_line

from . import alerts, chart
from .incident import HOUR, Firing, Numbers, Panel

Object = dict[str, Any]
_WIDTH = 110
_MAX_ROWS = 12
"""Maximum number of rows of one value, such as the queues of many models."""
_CLIENT = 64
"""Maximum length of the name of a client."""
_TITLES = {"demand": "demand", "load": "load", "queue": "time in the queue", "errors": "failed requests"}
_WORDS: Mapping[str, Callable[[float], str]] = {
    "demand": lambda v: f"{fleet.figure(v)} requests/s",
    "load": lambda v: f"{fleet.figure(v)} servers at full use",
    "queue": fleet.duration,
    "errors": lambda v: f"{fleet.share(v)} of the last five minutes",
}


@dataclass(frozen=True)
class Case:
    """Everything that is known about one alert of a TritonModel.

    - `firing`: the alert; `fires`: whether it fires, None if that isn't known; `others`: the other firing alerts
    - `panel`: what the picture shows; `now`: the time as Unix time; `notes`: what couldn't be read, and why
    """

    model: Object
    firing: Firing
    fires: bool | None
    now: float
    panel: Panel
    numbers: Numbers = field(default_factory=Numbers)
    autoscaler: Object | None = None
    others: Sequence[Firing] = ()
    notes: Sequence[str] = ()


def text(case: Case) -> str:
    """Returns the explanation."""
    metadata = case.model["metadata"]
    key, at = fleet.key_of(case.model), datetime.fromtimestamp(case.now, UTC)
    alert, runbook = case.firing.alert, alerts.RUNBOOKS.get(case.firing.alert.name, {})
    lines = [f"{_title(case)} {_state(case)} for {key}{_of(case.firing)}{_since(case.firing, at)}"]
    lines += [line for words in runbook.get("meaning", ()) for line in _wrap("  ", words)]
    lines += ["", "Now", *_now(case, at)]
    if case.numbers.value:
        lines += ["", *charts.terminal(hour(case))]
    if runbook:
        steps = [_named(step, case) for step in (*runbook["look"], *runbook["do"])]
        lines += ["", "First steps", *(line for step in steps for line in _wrap("  - ", step))]
    spec = case.model.get("spec", {}).get("autoscaling") or {}
    peak = max((v for _, v in case.numbers.value), default=None)
    commands = alerts.commands(case.firing, metadata["namespace"], metadata["name"], peak, spec.get("max"))
    when = f" ({words})" if (words := alerts.condition(alert.name)) else ""
    lines += ["", f"Next command{when}", *(f"  {command}" for command in commands)]
    for other in case.others:
        lines.append(f"Fires too: {other.alert.name}{_of(other)}{_since(other, at)}")
    lines += [f"Note: {note}" for note in case.notes]
    return "\n".join(map(one_line, [*lines, f"Runbook: {names.RUNBOOKS}/{alert.name}.md"]))


def hour(case: Case) -> charts.Chart:
    """Returns the chart of the last hour."""
    panel, numbers, since = case.panel, case.numbers, case.firing.since
    title = one_line(f"{_title(case)}: {fleet.key_of(case.model)}{_of(case.firing)}")
    begin = since if since is not None and case.now - HOUR <= since <= case.now else None
    values = chart.Hour(title, panel.name, panel.unit, case.now, numbers.value, numbers.limit, panel.limit_name, begin)
    return chart.chart(values)


def _title(case: Case) -> str:
    alert = case.firing.alert
    return f"{alert.name} ({alert.severity})" if alert.severity else alert.name


def _state(case: Case) -> str:
    return "fires" if case.fires else "does not fire" if case.fires is False else "may fire"


def _of(firing: Firing) -> str:
    return f", {firing.about}" if firing.about else ""


def _since(firing: Firing, now: datetime) -> str:
    if firing.since is None or not math.isfinite(firing.since):
        return ""
    since = datetime.fromtimestamp(min(max(firing.since, 0.0), now.timestamp()), UTC)
    return f"; its condition holds since {since:%Y-%m-%d %H:%M:%S}Z ({detail.age(since.isoformat(), now)})"


def _now(case: Case, now: datetime) -> list[str]:
    row = fleet.rows([case.model], [case.autoscaler] if case.autoscaler else [], Samples())[0]
    rows = [(f"{_TITLES[key]}{_part(part)}", _WORDS[key](value)) for key in _TITLES for part, value in _some(case, key)]
    desired, ready = (dict(case.numbers.now.get(key, ())).get("") for key in ("wanted", "ready"))
    note = f"; Prometheus has {ready:.0f} of {desired:.0f}" if desired is not None and ready is not None else ""
    rows.append(("servers", f"{row.ready} ready of {row.desired} wanted{note}"))
    rows += [("autoscaler", row.autoscaler)] if row.autoscaler != fleet.NONE else []
    rows += _thresholds(case, now)
    rows += [
        (f"condition {condition.type}", f"{condition.status}, {condition.reason}: {condition.message}")
        for condition in status_of(case.model).for_people
        if condition.status != "True" and condition.reason != "Complete"
    ]
    width = max(len(title) for title, _ in rows)
    return [line for title, words in rows for line in _wrap(f"  {title:<{width}}  ", words)]


def _some(case: Case, key: str) -> Sequence[tuple[str, float]]:
    return case.numbers.now.get(key, ())[:_MAX_ROWS]


def _part(part: str) -> str:
    return f", {part}" if part else ""


def _thresholds(case: Case, now: datetime) -> list[tuple[str, str]]:
    """Returns each accepted threshold with its age and its writer, and the value in Prometheus if it differs."""
    values = dict(case.numbers.now.get("thresholds", ()))
    rows = []
    for state in status_of(case.model).thresholds:
        part = ", ".join([*([f"version {state.version}"] if state.version else []), f"kind {state.kind}"])
        value, age = values.get(part), detail.age(state.since, now)
        note = f"; the rules use {fleet.figure(value)}" if value is not None and value != _number(state.value) else ""
        writer = _writer(case.model, state.source)
        words = f"{state.value}, accepted {age} ago from the annotation {state.source}{writer}{note}"
        rows.append((f"threshold {ThresholdKey(state.kind, state.version)}", words))
    return rows


def _writer(model: Object, annotation: str) -> str:
    """Returns which client wrote the annotation and when, from managedFields, in which a client names itself.

    Only the audit log has the user.
    """
    for entry in model["metadata"].get("managedFields") or ():
        annotations = entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:annotations", {})
        if f"f:{annotation}" in annotations:
            name = one_line(str(entry.get("manager", "")))[:_CLIENT] or "?"
            return f", written at {entry.get('time', 'an unknown time')} by a client that names itself {name}"
    return ""


def _number(words: str) -> float:
    try:
        return float(words)
    except ValueError:
        return math.nan


def _named(step: str, case: Case) -> str:
    """Returns a step of a runbook with the names of this TritonModel, and of the pod that the alert is about."""
    metadata = case.model["metadata"]
    values = {"NAMESPACE": metadata["namespace"], "NAME": metadata["name"], "POD": alerts.pod(case.firing) or "POD"}
    return re.sub(r"\b(?:NAMESPACE|NAME|POD)\b", lambda match: values[match[0]], step)


def _wrap(start: str, words: str) -> list[str]:
    indent = " " * (len(start) if len(start) < _WIDTH // 2 else 4)
    return textwrap.wrap(start + one_line(words[:2000]), _WIDTH, subsequent_indent=indent) or [start]
