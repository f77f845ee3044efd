"""`kubectl triton`: commands for users of TritonModels."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import click
import yaml

from triton_operator.api import names, thresholds
from triton_operator.api.plain_yaml import PlainDumper
from triton_operator.api.text import one_line
from triton_operator.api.types import TritonModel
from triton_operator.render import Choices, choose, render

from . import explain, models, options, parsing, show, top, validate
from .calibrate.command import calibrate


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="triton-operator", message="%(version)s")
def main() -> None:
    """Checks model repositories, renders TritonModels without a cluster, and shows their status.

    Lists, loads and unloads the models of running servers, and measures what one server handles.
    """


for command in (validate.command, top.command, explain.command, *models.COMMANDS, calibrate):
    main.add_command(command)


@main.command("render")
@click.argument("file", type=click.File())
@click.option(
    "--tools-image",
    default="ghcr.io/triton-operator/operator:0.1.0",
    show_default=True,
    help="Image of the operator, which the pods' init containers run.",
)
@click.option(
    "--delivery",
    type=click.Choice(["Copy", "ImageVolume"]),
    default="Copy",
    show_default=True,
    help="The delivery that your cluster uses for delivery: Auto.",
)
@click.option(
    "--namespace", "-n", default="default", show_default=True, help="Namespace of TritonModels without a namespace."
)
@click.option(
    "--entrypoint-type",
    type=click.Choice(["Ensemble", "Model"]),
    help="Type of the model in spec.entrypoint, which the operator reads from the model repository. Without this "
    "option, the output contains no PrometheusRule.",
)
@click.option(
    "--operator-namespace",
    default=names.FIELD_MANAGER,
    show_default=True,
    help="Namespace of the operator, for the NetworkPolicy.",
)
@click.option(
    "--prometheus-url",
    default=f"http://prometheus-operated.{names.PROMETHEUS_NAMESPACE}.svc:9090",
    show_default=True,
    help="URL of the Prometheus that KEDA queries, for the ScaledObject.",
)
def render_(
    file: TextIO,
    tools_image: str,
    delivery: Any,
    namespace: str,
    entrypoint_type: str | None,
    operator_namespace: str,
    prometheus_url: str,
) -> None:
    """Prints the objects that the operator creates for the TritonModels in FILE (- for standard input).

    Uses the operator's code and needs no cluster. Owner references have an empty uid, because the TritonModel isn't in
    a cluster. Thresholds come from the annotations in FILE.
    """
    objects = []
    for model, document in parsing.models(file, namespace):
        fresh = Choices(
            tools_image,
            delivery,
            entrypoint=(model.spec.entrypoint or "") if entrypoint_type else "",
            ensemble=entrypoint_type == "Ensemble",
            thresholds=thresholds.effective_of(document),
            operator_namespace=operator_namespace,
            prometheus=prometheus_url.rstrip("/"),
        )
        objects += render(model, choose(model, None, fresh))
        for note in _notes(model, document, bool(fresh.entrypoint)):
            click.echo(one_line(f"{model.key}: {note}"), err=True)
    click.echo(yaml.dump_all(objects, Dumper=PlainDumper, sort_keys=False, allow_unicode=True), nl=False)


@main.command()
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
    from . import cluster  # the import of the client takes half a second, and `render` doesn't need it

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


def _notes(model: TritonModel, document: dict[str, Any], has_rules: bool) -> list[str]:
    """Returns messages about invalid thresholds, and about objects that the output doesn't contain."""
    notes = [wrong.message for wrong in thresholds.of(document).invalid]
    if model.spec.monitoring.enabled and not has_rules:
        notes.append("no PrometheusRule: it needs spec.entrypoint and --entrypoint-type")
    return notes
