"""`kubectl triton status`: shows one TritonModel, and follows a start or a rollout."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import click

from kubectl_triton import options
from triton_repository_check.text import one_line

from . import show


@click.command("status")
@click.argument("name")
@click.option(
    "--watch", "-w", is_flag=True, help="Follow a start or a rollout: image, copy, check, models, ready servers."
)
@click.option(
    "--timeout",
    type=click.IntRange(1, 86400),
    default=600,
    show_default=True,
    help="Maximum number of seconds for --watch.",
)
@options.cluster
def status(name: str, watch: bool, timeout: int, namespace: str | None, context: str | None) -> None:
    """Shows the conditions, scaling, thresholds, models and pods of the TritonModel NAME.

    Exits with 0 if it is Ready, with 1 if it isn't or can't be read.

    With --watch, exits with 0 as soon as every server runs the current spec and it is Ready, with 1 if it fails, and
    with 2 after the timeout.
    """
    from kubectl_triton import cluster  # the import of the client takes half a second, and `render` doesn't need it

    try:
        connection = cluster.connect(namespace, context)
        if watch:
            from . import watch as follower

            sys.exit(follower.run(connection, name, timeout))
        model = connection.model(name)
        try:
            pods = connection.pods(model)
        except cluster.UnreachableError as error:
            if not error.forbidden:
                raise
            # Viewers and developers of TritonModels may not read pods. The status contains what matters.
            pods = []
            click.echo(one_line(f"without the pods: {error}"), err=True)
        autoscaler = connection.autoscaler(model)
    except cluster.UnreachableError as error:
        raise click.ClickException(one_line(str(error))) from None
    click.echo(show.status(model, pods, autoscaler, datetime.now(UTC)))
    sys.exit(0 if show.is_ready(model) else 1)
