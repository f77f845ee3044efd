"""One TritonModel in `kubectl triton top`: numbers, alerts, conditions, thresholds, servers, models, Events. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from triton_operator.api.status import PROGRESSING, Condition, ModelStatus, ThresholdStatus
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.status import pods as judge

from . import fleet, show_scaling
from .fleet import NONE, Cell, Tone
from .progress import event_time
from .samples import Alert, Samples

Object = dict[str, Any]
_SHOWN = 50
"""Maximum number of rows of a section."""
_TEXT_MAX = 500


@dataclass(frozen=True)
class Section:
    """A table with a title. `left_out`: number of rows that it doesn't contain."""

    title: str
    head: tuple[str, ...]
    rows: list[list[Cell]] = field(default_factory=list)
    left_out: int = 0


@dataclass(frozen=True)
class Found:
    """What was read about one TritonModel. `notes`: what couldn't be read, and why."""

    model: Object
    pods: Sequence[Object] = ()
    events: Sequence[Object] = ()
    autoscaler: Object | None = None
    samples: Samples = field(default_factory=Samples)
    notes: Sequence[str] = ()


def sections(found: Found, now: datetime) -> list[Section]:
    """Returns the sections of the view. Empty ones are left out."""
    status = fleet.status_of(found.model)
    alerts = (found.samples.alerts or {}).get(fleet.key_of(found.model), ())
    events = sorted(found.events, key=event_time, reverse=True)
    pods = sorted(found.pods, key=lambda p: str(p["metadata"]["name"]))
    row = fleet.rows([found.model], [found.autoscaler] if found.autoscaler else [], found.samples)[0]
    scaling = show_scaling.sentences(found.model, status, found.autoscaler, now)
    every = [
        _section("Now", fleet.TITLES[1:], [fleet.cells(row)[1:]]),
        _section("Alerts", ("ALERT", "SEVERITY", "NEXT"), [_alert(a, found.model["metadata"]) for a in alerts]),
        _section("Conditions", ("CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"),
                 [_condition(c, now) for c in status.conditions]),
        _section("Scaling", ("ENGINE AND DECISION",),
                 [[_text(line)] for line in scaling]),
        _section("Thresholds", ("THRESHOLD", "VALUE", "AGE", "SOURCE"),
                 [_threshold(t, now) for t in status.thresholds]),
        _section("Servers", ("SERVER", "READY", "RESTARTS", "AGE", "NODE", "NOW"), [_pod(p, now) for p in pods]),
        _section("Models", ("MODEL", "VERSION", "STATE", "SERVERS", "REASON"),
                 [_model(m) for m in sorted(status.models, key=lambda m: m.state == "READY")]),
        _section("Events", ("AGE", "TYPE", "REASON", "MESSAGE"), [_event(e, now) for e in events]),
    ]  # fmt: skip
    return [s for s in every if s.rows]


def age(time: str | None, now: datetime) -> str:
    """Returns how long ago a time (RFC 3339, UTC) is, such as 5m or 3d."""
    try:
        then = datetime.fromisoformat(f"{(time or '')[:19]}+00:00")
    except ValueError:
        return NONE
    seconds = max(0, int((now - then).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _section(title: str, head: tuple[str, ...], rows: list[list[Cell]]) -> Section:
    return Section(title, head, rows[:_SHOWN], max(0, len(rows) - _SHOWN))


def _text(text: str) -> Cell:
    return fleet.cell(text, most=_TEXT_MAX)


def _alert(one: Alert, metadata: Object) -> list[Cell]:
    command = f"kubectl triton explain-alert {metadata['name']} {one.name.removeprefix('TritonModel')}"
    name = fleet.cell(one.name, "bad" if one.severity == "critical" else "warn")
    return [name, fleet.cell(one.severity), _text(f"{command} -n {metadata['namespace']} --prometheus URL")]


def _condition(one: Condition, now: datetime) -> list[Cell]:
    bad = one.status == "False" and not (one.type == PROGRESSING and one.reason == "Complete")
    tone: Tone = "bad" if bad else "warn" if one.status == "Unknown" else "good"
    since = age(one.last_transition_time, now)
    parts = [fleet.cell(one.type, tone), fleet.cell(one.status), fleet.cell(since), fleet.cell(one.reason)]
    return [*parts, _text(one.message)]


def _threshold(one: ThresholdStatus, now: datetime) -> list[Cell]:
    shown = (str(ThresholdKey(one.kind, one.version)), one.value, age(one.since, now), one.source)
    return [fleet.cell(text) for text in shown]


def _model(one: ModelStatus) -> list[Cell]:
    state = fleet.cell(one.state, "good" if one.state == "READY" else "bad")
    return [fleet.cell(one.name), fleet.cell(one.version or NONE), state, fleet.cell(one.pods), _text(one.reason)]


def _pod(pod: Object, now: datetime) -> list[Cell]:
    metadata = pod["metadata"]
    found = judge.problem(pod)
    step = "serving" if judge.is_ready(pod) else "terminating" if not judge.alive(pod) else judge.phase(pod).message
    return [
        fleet.cell(metadata["name"], most=80),
        fleet.cell("yes", "good") if judge.is_ready(pod) else fleet.cell("no", "bad" if found else "warn"),
        fleet.cell(str(judge.restarts(pod))),
        fleet.cell(age(metadata.get("creationTimestamp"), now)),
        fleet.cell(str(pod.get("spec", {}).get("nodeName", NONE))),
        _text(f"{found.reason}: {found.message}" if found else step),
    ]


def _event(event: Object, now: datetime) -> list[Cell]:
    bad = event.get("type") == "Warning"
    return [
        fleet.cell(age(event_time(event), now)),
        fleet.cell(str(event.get("type", "")), "warn" if bad else "plain"),
        fleet.cell(str(event.get("reason", ""))),
        _text(str(event.get("message", ""))),
    ]
