"""`kubectl triton render`: prints what the operator would create, without a cluster."""

from __future__ import annotations

from typing import Any, TextIO

import click
import yaml

from triton_operator.api import enforcement, names, thresholds
from triton_operator.api.plain_yaml import PlainDumper
from triton_operator.api.types import TritonModel
from triton_operator.decisions.first_objects import first_objects
from triton_operator.render import Facts
from triton_operator.render.facts import Capabilities, RenderSettings
from triton_repository_check.text import one_line

from . import parsing


@click.command("render")
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
@click.option("--openshift", is_flag=True, help="Your cluster is an OpenShift, which sets the pods' user and groups.")
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
    help="URL of the Prometheus that has the load, for an autoscaler that queries it.",
)
def render(
    file: TextIO,
    tools_image: str,
    delivery: Any,
    openshift: bool,
    namespace: str,
    entrypoint_type: str | None,
    operator_namespace: str,
    prometheus_url: str,
) -> None:
    """Prints the objects that the operator creates for the TritonModels in FILE (- for standard input).

    Uses the operator's code and needs no cluster. Owner references have an empty uid, because the TritonModel isn't in
    a cluster. Thresholds come from the annotations in FILE. Fails if the API server would refuse a value, such as a
    number for text, and says what to write.
    """
    objects = []
    for model, document in parsing.models(file, namespace):
        facts = Facts(
            tools_image,
            delivery,
            entrypoint=(model.spec.entrypoint or "") if entrypoint_type else "",
            ensemble=entrypoint_type == "Ensemble",
            thresholds=thresholds.effective_of(document),
            prometheus=prometheus_url.rstrip("/"),
            settings=RenderSettings(operator_namespace=operator_namespace),
            cluster=Capabilities(openshift=openshift),
        )
        objects += first_objects(model, facts)
        for note in _notes(model, document, bool(facts.entrypoint)):
            click.echo(one_line(f"{model.key}: {note}"), err=True)
    text = _dumped(objects, ascii_only=False)
    # YAML allows characters that change the direction of the text on a terminal.
    if not text.replace("\n", "").isprintable():
        text = _dumped(objects, ascii_only=True)
    click.echo(text, nl=False)


def _dumped(objects: list[dict[str, Any]], *, ascii_only: bool) -> str:
    return str(yaml.dump_all(objects, Dumper=PlainDumper, sort_keys=False, allow_unicode=not ascii_only))


def _notes(model: TritonModel, document: dict[str, Any], has_rules: bool) -> list[str]:
    """Returns messages about invalid thresholds, and about objects that the output doesn't contain."""
    notes = [error.message for error in thresholds.of(document).invalid]
    notes += filter(None, [enforcement.problem(model.metadata.annotations)])
    if model.spec.monitoring.enabled and not has_rules:
        notes.append("no PrometheusRule: it needs spec.entrypoint and --entrypoint-type")
    removed = document["spec"].get("podTemplate") or {}
    notes += [
        f"{path}: null removes the field, but kubectl apply, kustomize and Argo CD drop it in silence: use "
        "spec.podTemplate.omit, or kubectl apply --server-side"
        for path in parsing.nulls(removed.get("spec"), "spec.podTemplate.spec")
    ]
    return notes
