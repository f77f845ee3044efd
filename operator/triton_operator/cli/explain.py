"""`kubectl triton explain-alert`: from an alert to the numbers, a picture and the next command."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triton_operator.api import names
from triton_operator.api.status import THRESHOLD_LIVE
from triton_operator.api.text import one_line
from triton_operator.api.thresholds import ThresholdKey

from . import alerts, curve, detail, fleet, options
from .incident import HOUR, Firing, Numbers, Shown
from .samples import Alert, Samples

if TYPE_CHECKING:
    from .cluster import Cluster

Object = dict[str, Any]
_WIDTH = 110
_MAX_ROWS = 12
"""Maximum number of rows of one value, such as the queues of many models."""
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

    - `found`: the alert; `fires`: whether it fires, None if that isn't known; `others`: the other firing alerts
    - `shown`: what the picture shows; `now`: the time as Unix time; `notes`: what couldn't be read, and why
    """

    model: Object
    found: Firing
    fires: bool | None
    now: float
    shown: Shown
    numbers: Numbers = field(default_factory=Numbers)
    autoscaler: Object | None = None
    others: Sequence[Firing] = ()
    notes: Sequence[str] = ()


def text(case: Case) -> str:
    """Returns the explanation."""
    metadata = case.model["metadata"]
    key, at = fleet.key_of(case.model), datetime.fromtimestamp(case.now, UTC)
    alert, runbook = case.found.alert, alerts.RUNBOOKS.get(case.found.alert.name, {})
    lines = [f"{_title(case)} {_state(case)} for {key}{_of(case.found)}{_since(case.found, at)}"]
    lines += [line for words in runbook.get("meaning", ()) for line in _wrap("  ", words)]
    lines += ["", "Now", *_now(case, at)]
    pictured = _picture(case)
    if drawn := curve.terminal(pictured):
        lines += ["", f"{pictured.heading}, the last hour", *drawn]
    if runbook:
        steps = [_named(step, case) for step in (*runbook["look"], *runbook["do"])]
        lines += ["", "First steps", *(line for step in steps for line in _wrap("  - ", step))]
    spec = case.model.get("spec", {}).get("autoscaling") or {}
    peak = max((v for _, v in case.numbers.value), default=None)
    following = alerts.commands(case.found, metadata["namespace"], metadata["name"], peak, spec.get("max"))
    when = f" ({words})" if (words := alerts.condition(alert.name)) else ""
    lines += ["", f"Next command{when}", *(f"  {command}" for command in following)]
    for other in case.others:
        lines.append(f"Fires too: {other.alert.name}{_of(other)}{_since(other, at)}")
    lines += [f"Note: {note}" for note in case.notes]
    return "\n".join(map(one_line, [*lines, f"Runbook: {names.RUNBOOKS}/{alert.name}.md"]))


def picture(case: Case) -> str:
    """Returns the picture of the last hour as SVG."""
    return curve.svg(_picture(case))


def _picture(case: Case) -> curve.Picture:
    shown, start, since = case.shown, case.now - HOUR, case.found.since
    title = one_line(f"{_title(case)}: {fleet.key_of(case.model)}{_of(case.found)}")
    known = since if since is not None and start <= since <= case.now else None
    value, limit = case.numbers.value, case.numbers.limit
    return curve.Picture(title, shown.name, shown.unit, start, case.now, value, limit, shown.limit_name, known)


def _title(case: Case) -> str:
    alert = case.found.alert
    return f"{alert.name} ({alert.severity})" if alert.severity else alert.name


def _state(case: Case) -> str:
    return "fires" if case.fires else "does not fire" if case.fires is False else "may fire"


def _of(found: Firing) -> str:
    return f", {found.about}" if found.about else ""


def _since(found: Firing, now: datetime) -> str:
    if found.since is None or not math.isfinite(found.since):
        return ""
    since = datetime.fromtimestamp(min(max(found.since, 0.0), now.timestamp()), UTC)
    return f"; its condition holds since {since:%Y-%m-%d %H:%M:%S}Z ({detail.age(since.isoformat(), now)})"


def _now(case: Case, now: datetime) -> list[str]:
    row = fleet.rows([case.model], [case.autoscaler] if case.autoscaler else [], Samples())[0]
    rows = [(f"{_TITLES[key]}{_part(part)}", _WORDS[key](value)) for key in _TITLES for part, value in _some(case, key)]
    wanted, ready = (dict(case.numbers.now.get(key, ())).get("") for key in ("wanted", "ready"))
    seen = f"; Prometheus has {ready:.0f} of {wanted:.0f}" if wanted is not None and ready is not None else ""
    rows.append(("servers", f"{row.ready} ready of {row.wanted} wanted{seen}"))
    rows += [("autoscaler", row.autoscaler)] if row.autoscaler != fleet.NONE else []
    rows += _thresholds(case, now)
    rows += [
        (f"condition {one.type}", f"{one.status}, {one.reason}: {one.message}")
        for one in fleet.status_of(case.model).conditions
        if one.status != "True" and one.reason != "Complete"
    ]
    width = max(len(title) for title, _ in rows)
    return [line for title, words in rows for line in _wrap(f"  {title:<{width}}  ", words)]


def _some(case: Case, key: str) -> Sequence[tuple[str, float]]:
    return case.numbers.now.get(key, ())[:_MAX_ROWS]


def _part(part: str) -> str:
    return f", {part}" if part else ""


def _thresholds(case: Case, now: datetime) -> list[tuple[str, str]]:
    """Returns each accepted threshold with its age and its writer, and the value in Prometheus if it differs."""
    live = dict(case.numbers.now.get("thresholds", ()))
    found = []
    for one in fleet.status_of(case.model).thresholds:
        part = ", ".join([*([f"version {one.version}"] if one.version else []), f"kind {one.kind}"])
        differs = (
            f"; the rules use {fleet.figure(live[part])}" if part in live and live[part] != _number(one.value) else ""
        )
        writer = _writer(case.model, one.source)
        said = (
            f"{one.value}, accepted {detail.age(one.since, now)} ago from the annotation {one.source}{writer}{differs}"
        )
        found.append((f"threshold {ThresholdKey(one.kind, one.version)}", said))
    return found


def _writer(model: Object, annotation: str) -> str:
    """Returns which client wrote the annotation and when, from managedFields. The audit log has the user."""
    for entry in model["metadata"].get("managedFields") or ():
        annotations = entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:annotations", {})
        if f"f:{annotation}" in annotations:
            return f", written by {entry.get('manager', 'a client')} at {entry.get('time', 'an unknown time')}"
    return ""


def _number(words: str) -> float:
    try:
        return float(words)
    except ValueError:
        return math.nan


def _named(step: str, case: Case) -> str:
    """Returns a step of a runbook with the names of this TritonModel, and of the pod that the alert is about."""
    metadata = case.model["metadata"]
    known = {"NAMESPACE": metadata["namespace"], "NAME": metadata["name"], "POD": alerts.pod(case.found) or "POD"}
    return re.sub(r"\b(?:NAMESPACE|NAME|POD)\b", lambda match: known[match[0]], step)


def _wrap(start: str, words: str) -> list[str]:
    indent = " " * (len(start) if len(start) < _WIDTH // 2 else 4)
    return textwrap.wrap(start + one_line(words[:2000]), _WIDTH, subsequent_indent=indent) or [start]


def look(connection: Cluster, name: str, alert: str, prometheus: str, now: float) -> Case | None:
    """Reads the cluster and Prometheus. Returns None if no alert is given and none fires. Raises UnreachableError."""
    from . import incident
    from .samples import NoAnswerError

    model, notes = connection.model(name), list[str]()
    autoscaler = connection.autoscaler(model)
    namespace = model["metadata"]["namespace"]
    every: list[Firing] | None = None
    if prometheus:
        try:
            every = incident.firing(prometheus, namespace, name)
        except NoAnswerError as error:
            notes.append(str(error))
    else:
        notes.append("without --prometheus URL there are no numbers of the requests, and no list of firing alerts")
    chosen = [f for f in every or () if not alert or f.alert.name == alert]
    if not chosen:
        suspects = [] if every is not None else _suspects(model, autoscaler)
        unknown = alert or (suspects[0] if suspects else "")
        if not unknown:
            if every is None:
                raise click.ClickException(one_line(f"name an alert: the status of {name} suggests none; {notes[0]}"))
            return None
        chosen = [Firing(Alert(unknown, ""))]
    found = chosen[0]
    shown, numbers = alerts.shown(found, namespace, name), Numbers()
    if every is not None:
        try:
            numbers = incident.numbers(prometheus, namespace, name, shown, now)
        except NoAnswerError as error:
            notes.append(str(error))
    fires = None if every is None else found in every
    others = [f for f in every or () if f is not found]
    return Case(model, found, fires, now, shown, numbers, autoscaler, others, notes)


def _suspects(model: Object, autoscaler: Object | None) -> Sequence[str]:
    row = fleet.rows([model], [autoscaler] if autoscaler else [], Samples())[0]
    live = next((c.reason for c in fleet.status_of(model).conditions if c.type == THRESHOLD_LIVE), "")
    return alerts.suspected(row.ready, row.wanted, live)


@click.command("explain-alert")
@click.argument("name")
@click.argument("alert", required=False, default="")
@click.option(
    "--prometheus",
    default="",
    metavar="URL",
    help="Prometheus with the operator's rules, for the firing alerts and the numbers. For example "
    "http://localhost:9090 with kubectl port-forward.",
)
@click.option(
    "--svg", type=click.Path(dir_okay=False, writable=True, path_type=Path), help="Write a picture of the last hour."
)
@options.cluster
def command(
    name: str, alert: str, prometheus: str, svg: Path | None, namespace: str | None, context: str | None
) -> None:
    """Explains an alert of the TritonModel NAME: what fires, since when, the numbers now, and the next command.

    ALERT: the name of the alert, with or without TritonModel. Default: the most severe alert that fires.

    Reads the API server, and Prometheus with --prometheus. Changes nothing. Exits with 0 also if no alert fires.
    """
    from . import cluster  # the import of the client takes half a second

    wanted = alerts.full_name(alert)
    if alert and not wanted:
        known = ", ".join(one.removeprefix("TritonModel") for one in alerts.NAMES)
        raise click.UsageError(one_line(f"no alert {alert[:80]!r}; there are {known}"))
    try:
        connection = cluster.connect(namespace, context)
        case = look(connection, name, wanted, prometheus, datetime.now(UTC).timestamp())
    except cluster.UnreachableError as error:
        raise click.ClickException(one_line(str(error))) from None
    if case is None:
        click.echo(one_line(f"no alert of {name} fires"))
        return
    click.echo(text(case))
    if svg:
        svg.write_text(picture(case), encoding="utf-8")
