"""`kubectl triton …`: what people ask of TritonModels from their own machine."""

from __future__ import annotations

import sys
from typing import Any, TextIO

import click
import yaml

from triton_operator.api import names, thresholds
from triton_operator.api.plain_yaml import PlainDumper
from triton_operator.api.text import one_line
from triton_operator.api.types import TritonModel
from triton_operator.render import Choices, choose, render

from . import parsing, show, validate


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Work with TritonModels: check their models, render them without a cluster, and see at a glance how they are."""


main.add_command(validate.command)


@main.command("render")
@click.argument("file", type=click.File())
@click.option(
    "--tools-image",
    default="ghcr.io/triton-operator/operator:0.1.0",
    show_default=True,
    help="The operator's image, from which the pods' init containers run.",
)
@click.option(
    "--delivery",
    type=click.Choice(["Copy", "ImageVolume"]),
    default="Copy",
    show_default=True,
    help="What delivery: Auto means on your cluster.",
)
@click.option(
    "--namespace", "-n", default="default", show_default=True, help="Namespace of TritonModels that name none."
)
@click.option(
    "--entrypoint-type",
    type=click.Choice(["Ensemble", "Model"]),
    help="What spec.entrypoint is, which the operator knows from a server's repository. Without it no PrometheusRule "
    "is printed.",
)
@click.option(
    "--operator-namespace",
    default=names.FIELD_MANAGER,
    show_default=True,
    help="Where the operator runs, for the NetworkPolicy.",
)
def render_(
    file: TextIO,
    tools_image: str,
    delivery: Any,
    namespace: str,
    entrypoint_type: str | None,
    operator_namespace: str,
) -> None:
    """Print the objects that the operator would make from FILE (- for standard input), by the operator's own code.

    Needs no cluster. Owner references have an empty uid: without the TritonModel in a cluster there is none.
    Thresholds are those of the annotations in FILE.
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
        )
        objects += render(model, choose(model, None, fresh))
        for note in _notes(model, document, bool(fresh.entrypoint)):
            click.echo(one_line(f"{model.key}: {note}"), err=True)
    click.echo(yaml.dump_all(objects, Dumper=PlainDumper, sort_keys=False, allow_unicode=True), nl=False)


@main.command()
@click.argument("name")
@click.option("--namespace", "-n", default=None, help="Default: the namespace of the current context.")
@click.option("--context", default=None, help="Which context of the kubeconfig to use.")
def status(name: str, namespace: str | None, context: str | None) -> None:
    """Show the conditions, models and pods of the TritonModel NAME.

    Exits with 0 where it is Ready, with 1 where it isn't.
    """
    from . import cluster  # the client takes half a second to import, which render needs not wait for

    try:
        model, pods = cluster.fetch(name, namespace, context)
    except cluster.UnreachableError as error:
        raise click.ClickException(one_line(str(error))) from None
    click.echo(show.status(model, pods))
    sys.exit(0 if show.is_ready(model) else 1)


def _notes(model: TritonModel, document: dict[str, Any], has_rules: bool) -> list[str]:
    """What a reader of the objects would miss."""
    notes = [wrong.message for wrong in thresholds.of(document).invalid]
    if model.spec.monitoring.enabled and not has_rules:
        notes.append("no PrometheusRule: it needs spec.entrypoint and --entrypoint-type")
    return notes
