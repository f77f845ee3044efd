"""One TritonModel in `kubectl triton top`: numbers, alerts, conditions, thresholds, servers, models, Events. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kubectl_triton.samples import Alert, Samples
from kubectl_triton.status import show_scaling
from kubectl_triton.status.progress import event_time
from triton_operator.api.status import PROGRESSING, SERVER_FAULTS, Condition, ModelStatus, ThresholdStatus, status_of
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.pods import Pod
from triton_operator.pods.problems import problem_of, step_of

from . import fleet
from .fleet import NONE, Cell, Tone

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
class Reading:
    """What was read about one TritonModel. `notes`: what couldn't be read, and why."""

    model: Object
    pods: Sequence[Pod] = ()
    events: Sequence[Object] = ()
    autoscaler: Object | None = None
    samples: Samples = field(default_factory=Samples)
    notes: Sequence[str] = ()


def sections(reading: Reading, now: datetime) -> list[Section]:
    """Returns the sections of the view. Empty ones are left out."""
    status = status_of(reading.model)
    alerts = (reading.samples.alerts or {}).get(fleet.key_of(reading.model), ())
    events = sorted(reading.events, key=event_time, reverse=True)
    pods = sorted(reading.pods, key=lambda p: p.name)
    row = fleet.rows([reading.model], [reading.autoscaler] if reading.autoscaler else [], reading.samples)[0]
    scaling = show_scaling.sentences(reading.model, status, reading.autoscaler, now)
    parts = [
        _section("Now", fleet.TITLES[1:], [fleet.cells(row)[1:]]),
        _section("Alerts", ("ALERT", "SEVERITY", "NEXT"), [_alert(a, reading.model["metadata"]) for a in alerts]),
        _section("Conditions", ("CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"),
                 [_condition(c, now) for c in status.for_people]),
        _section("Scaling", ("ENGINE AND DECISION",),
                 [[_text(line)] for line in scaling]),
        _section("Thresholds", ("THRESHOLD", "VALUE", "AGE", "SOURCE"),
                 [_threshold(t, now) for t in status.thresholds]),
        _section("Servers", ("SERVER", "READY", "RESTARTS", "AGE", "NODE", "NOW"), [_pod(p, now) for p in pods]),
        _section("Models", ("MODEL", "VERSION", "STATE", "SERVERS", "LOAD TIME", "REASON"),
                 [_model(m) for m in sorted(status.models, key=lambda m: m.state == "READY")]),
        _section("Events", ("AGE", "TYPE", "REASON", "MESSAGE"), [_event(e, now) for e in events]),
    ]  # fmt: skip
    return [s for s in parts if s.rows]


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


def _alert(alert: Alert, metadata: Object) -> list[Cell]:
    command = f"kubectl triton explain-alert {metadata['name']} {alert.name.removeprefix('TritonModel')}"
    name = fleet.cell(alert.name, "bad" if alert.severity == "critical" else "warn")
    return [name, fleet.cell(alert.severity), _text(f"{command} -n {metadata['namespace']} --prometheus URL")]


def _condition(condition: Condition, now: datetime) -> list[Cell]:
    bad = condition.status == "False" and not (condition.type == PROGRESSING and condition.reason == "Complete")
    doubtful = condition.status == "Unknown" or condition.reason in SERVER_FAULTS
    tone: Tone = "bad" if bad else "warn" if doubtful else "good"
    texts = (condition.status, age(condition.last_transition_time, now), condition.reason)
    return [fleet.cell(condition.type, tone), *map(fleet.cell, texts), _text(condition.message)]


def _threshold(state: ThresholdStatus, now: datetime) -> list[Cell]:
    texts = (str(ThresholdKey(state.kind, state.version)), state.value, age(state.since, now), state.source)
    return [fleet.cell(text) for text in texts]


def _model(model: ModelStatus) -> list[Cell]:
    state = fleet.cell(model.state, "good" if model.state == "READY" else "bad")
    texts = (model.name, model.version or NONE, model.pods, model.load_time or NONE)
    name, version, pods, load_time = map(fleet.cell, texts)
    return [name, version, state, pods, load_time, _text(model.reason)]


def _pod(pod: Pod, now: datetime) -> list[Cell]:
    metadata = pod.raw["metadata"]
    problem = problem_of(pod)
    step = "serving" if pod.is_ready else "terminating" if not pod.is_alive else step_of(pod).message
    return [
        fleet.cell(metadata["name"], most=80),
        fleet.cell("yes", "good") if pod.is_ready else fleet.cell("no", "bad" if problem else "warn"),
        fleet.cell(str(pod.restarts)),
        fleet.cell(age(metadata.get("creationTimestamp"), now)),
        fleet.cell(str(pod.raw.get("spec", {}).get("nodeName", NONE))),
        _text(f"{problem.reason}: {problem.message}" if problem else step),
    ]


def _event(event: Object, now: datetime) -> list[Cell]:
    bad = event.get("type") == "Warning"
    return [
        fleet.cell(age(event_time(event), now)),
        fleet.cell(str(event.get("type", "")), "warn" if bad else "plain"),
        fleet.cell(str(event.get("reason", ""))),
        _text(str(event.get("message", ""))),
    ]
