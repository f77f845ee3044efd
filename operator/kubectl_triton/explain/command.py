"""`kubectl triton explain-alert`: from an alert to the numbers, a picture and the next command."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubectl_triton import charts, options
from kubectl_triton.samples import Alert, Samples
from kubectl_triton.top import fleet
from triton_operator.api.status import THRESHOLD_LIVE, status_of
from triton_repository_check.text import one_line

from . import alerts, explanation
from .explanation import Case
from .incident import Firing, Numbers

if TYPE_CHECKING:
    from kubectl_triton.cluster import Cluster

Object = dict[str, Any]


def look(connection: Cluster, name: str, alert: str, prometheus: str, now: float) -> Case | None:
    """Reads the cluster and Prometheus. Returns None if no alert is given and none fires. Raises UnreachableError."""
    from kubectl_triton.samples import NoAnswerError

    from . import incident

    model, notes = connection.model(name), list[str]()
    autoscaler = connection.autoscaler(model)
    namespace = model["metadata"]["namespace"]
    firings: list[Firing] | None = None
    if prometheus:
        try:
            firings = incident.firing(prometheus, namespace, name)
        except NoAnswerError as error:
            notes.append(str(error))
    else:
        notes.append("without --prometheus URL there are no numbers of the requests, and no list of firing alerts")
    matches = [f for f in firings or () if not alert or f.alert.name == alert]
    if not matches:
        suspects = [] if firings is not None else _suspects(model, autoscaler)
        suspect = alert or (suspects[0] if suspects else "")
        if not suspect:
            if firings is None:
                raise click.ClickException(one_line(f"name an alert: the status of {name} suggests none; {notes[0]}"))
            return None
        matches = [Firing(Alert(suspect, ""))]
    firing = matches[0]
    panel, numbers = alerts.panel(firing, namespace, name), Numbers()
    if firings is not None:
        try:
            numbers = incident.numbers(prometheus, namespace, name, panel, now)
        except NoAnswerError as error:
            notes.append(str(error))
    fires = None if firings is None else firing in firings
    others = [f for f in firings or () if f is not firing]
    return Case(model, firing, fires, now, panel, numbers, autoscaler, others, notes)


def _suspects(model: Object, autoscaler: Object | None) -> Sequence[str]:
    row = fleet.rows([model], [autoscaler] if autoscaler else [], Samples())[0]
    reason = next((c.reason for c in status_of(model).conditions if c.type == THRESHOLD_LIVE), "")
    return alerts.suspected(row.ready, row.desired, reason)


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
def explain_alert(
    name: str, alert: str, prometheus: str, svg: Path | None, namespace: str | None, context: str | None
) -> None:
    """Explains an alert of the TritonModel NAME: what fires, since when, the numbers now, and the next command.

    ALERT: the name of the alert, with or without TritonModel. Default: the most severe alert that fires.

    Reads the API server, and Prometheus with --prometheus. Changes nothing. Exits with 0 also if no alert fires.
    """
    from kubectl_triton import cluster  # the import of the client takes half a second

    full_name = alerts.full_name(alert)
    if alert and not full_name:
        choices = ", ".join(choice.removeprefix("TritonModel") for choice in alerts.NAMES)
        raise click.UsageError(one_line(f"no alert {alert[:80]!r}; there are {choices}"))
    try:
        connection = cluster.connect(namespace, context)
        case = look(connection, name, full_name, prometheus, datetime.now(UTC).timestamp())
    except cluster.UnreachableError as error:
        raise click.ClickException(one_line(str(error))) from None
    if case is None:
        click.echo(one_line(f"no alert of {name} fires"))
        return
    click.echo(explanation.text(case))
    if svg and not case.numbers.value:
        click.echo(f"{svg} isn't written: Prometheus has no values of the last hour", err=True)
    elif svg:
        svg.write_text(charts.svg([explanation.hour(case)]), encoding="utf-8")
