"""`kubectl triton top`: a live view of TritonModels, or one table."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import click

from kubectl_triton import options
from kubectl_triton.text_table import table
from triton_repository_check.text import one_line

from . import detail, fleet
from .source import Source


def once(source: Source, name: str) -> str:
    """Returns one table, or one TritonModel, as text. Raises UnreachableError."""
    if name:
        reading = source.reading(f"{source.cluster.namespace}/{name}")
        lines = list(reading.notes)
        for section in detail.sections(reading, datetime.now(UTC)):
            rows = [[cell.text for cell in row] for row in section.rows]
            lines += [section.title, *table(list(section.head), rows)]
            lines += [f"  and {section.left_out} more"] if section.left_out else []
        return "\n".join(map(one_line, lines))
    overview = source.overview()
    rows = [[cell.text for cell in fleet.cells(row)] for row in fleet.arranged(overview.rows)]
    return "\n".join(map(one_line, [*(line.strip() for line in table(list(fleet.TITLES), rows)), *overview.notes]))


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
def top(
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
    from kubectl_triton import cluster  # the import of the client takes half a second

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
    from .view import Top  # imports Textual

    Top(source, f"{connection.namespace}/{name}" if name else "", float(interval)).run()
