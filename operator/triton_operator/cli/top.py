"""`kubectl triton top`: a live view of TritonModels, or one table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from triton_operator.api.text import one_line

from . import detail, fleet, options, show

if TYPE_CHECKING:
    from .cluster import Cluster
    from .samples import Samples

Object = dict[str, Any]
T = TypeVar("T")
MAX_MODELS, _MAX_PODS, _MAX_EVENTS = 2000, 200, 200
"""Maximum number of TritonModels, of pods of one TritonModel, and of its Events, in one round."""


@dataclass(frozen=True)
class Overview:
    """All TritonModels. `notes`: what couldn't be read, and why."""

    rows: Sequence[fleet.Row]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Source:
    """Reads from the cluster, and from Prometheus if there is a URL. Raises UnreachableError.

    `namespace`: None means all namespaces.
    """

    cluster: Cluster
    namespace: str | None
    prometheus: str = ""

    def overview(self) -> Overview:
        """Returns a row for each TritonModel."""
        models = self.cluster.models(self.namespace, MAX_MODELS)
        notes: list[str] = []
        scalers = _optional(lambda: self.cluster.autoscalers(self.namespace, MAX_MODELS), notes, "autoscalers")
        samples = self._samples(self.namespace, notes)
        if len(models) == MAX_MODELS:
            notes.append(f"only the first {MAX_MODELS} TritonModels are shown")
        return Overview(fleet.rows(models, scalers, samples), notes)

    def one(self, key: str) -> detail.Found:
        """Returns what is known about the TritonModel with this namespace/name."""
        namespace, name = key.split("/")
        connection = self.cluster.within(namespace)
        model, notes = connection.model(name), list[str]()
        pods = _optional(lambda: connection.pods(model, _MAX_PODS), notes, "pods")
        events = _optional(lambda: connection.events(model, _MAX_EVENTS), notes, "Events")
        samples = self._samples(namespace, notes)
        return detail.Found(model, pods, events, connection.autoscaler(model), samples, notes)

    def _samples(self, namespace: str | None, notes: list[str]) -> Samples:
        from . import samples  # imports the HTTP client

        found = samples.read(self.prometheus, namespace) if self.prometheus else samples.Samples()
        notes += [found.error] if found.error else []
        return found


def _optional(read: Callable[[], list[T]], notes: list[str], what: str) -> list[T]:
    """Returns what the user may read: nothing without the permission. Viewers of TritonModels may read only these."""
    from .cluster import UnreachableError

    try:
        return read()
    except UnreachableError as error:
        if not error.forbidden:
            raise
        notes.append(f"without {what}: you have no permission to list them")
        return []


def once(source: Source, name: str) -> str:
    """Returns one table, or one TritonModel, as text. Raises UnreachableError."""
    if name:
        found = source.one(f"{source.cluster.namespace}/{name}")
        lines = list(found.notes)
        for section in detail.sections(found, datetime.now(UTC)):
            rows = [[cell.text for cell in row] for row in section.rows]
            lines += [section.title, *show.table(list(section.head), rows)]
            lines += [f"  and {section.left_out} more"] if section.left_out else []
        return "\n".join(map(one_line, lines))
    overview = source.overview()
    rows = [[cell.text for cell in fleet.cells(row)] for row in fleet.arranged(overview.rows)]
    return "\n".join(map(one_line, [*(line.strip() for line in show.table(list(fleet.TITLES), rows)), *overview.notes]))


@click.command("top")
@click.argument("name", required=False, default="")
@click.option("--all-namespaces", "-A", is_flag=True, help="Show the TritonModels of all namespaces.")
@click.option(
    "--prometheus",
    default="",
    metavar="URL",
    help="Prometheus with the operator's rules, for demand, latency, queue, failures and alerts. For example "
    "http://localhost:9090 with kubectl port-forward.",
)
@click.option("--once", "one_table", is_flag=True, help="Print one table and exit.")
@click.option(
    "--interval", type=click.IntRange(2, 3600), default=2, show_default=True, help="Seconds between two readings."
)
@options.cluster
def command(
    name: str,
    all_namespaces: bool,
    prometheus: str,
    one_table: bool,
    interval: int,
    namespace: str | None,
    context: str | None,
) -> None:
    """Shows the TritonModels live: demand and limit, load and servers, latency, queue, failures, autoscaler, alerts.

    With NAME, shows this one: its row, alerts, conditions, thresholds, servers, models and Events. Keys: arrows or j
    and k to move, Enter to open, Esc to go back, s to sort by the next column, / to filter, q to quit.

    Reads the API server, and Prometheus with --prometheus. Exits with 1 if the cluster can't be read.
    """
    from . import cluster  # the import of the client takes half a second

    if name and all_namespaces:
        raise click.UsageError("NAME and --all-namespaces exclude each other")
    if not one_table and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("the live view needs a terminal: use --once for one table")
    try:
        connection = cluster.connect(namespace, context)
        source = Source(connection, None if all_namespaces else connection.namespace, prometheus)
        if one_table:
            click.echo(once(source, name))
            return
    except cluster.UnreachableError as error:
        raise click.ClickException(one_line(str(error))) from None
    from .top_view import Top  # imports Textual

    Top(source, f"{connection.namespace}/{name}" if name else "", float(interval)).run()
