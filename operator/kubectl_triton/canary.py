"""`kubectl triton promote` and `abort`: end a canary."""

from __future__ import annotations

from typing import Any

import click

from kubectl_triton import options
from triton_operator.api import kinds
from triton_operator.api.status import CANARY, status_of
from triton_repository_check.text import one_line

Object = dict[str, Any]
_IN_GIT = "If a GitOps tool writes it, change its source too, or it sets this back"


@click.command("promote")
@click.argument("name")
@click.option("--force", is_flag=True, help="Also if the canary isn't ready, or gets no requests.")
@options.cluster
def promote(name: str, force: bool, namespace: str | None, context: str | None) -> None:
    """Makes the canary of the TritonModel NAME its spec, and ends it.

    What spec.canary sets, such as its model image, goes into the spec, and spec.canary goes. Then the other servers are
    replaced one after the other, and the canary's end.
    """
    _end(name, namespace, context, keep=True, force=force)


@click.command("abort")
@click.argument("name")
@options.cluster
def abort(name: str, namespace: str | None, context: str | None) -> None:
    """Ends the canary of the TritonModel NAME: removes spec.canary. The other servers stay as they are."""
    _end(name, namespace, context, keep=False, force=True)


def _end(name: str, namespace: str | None, context: str | None, *, keep: bool, force: bool) -> None:
    from kubectl_triton import cluster  # imports the client, which takes half a second
    from triton_operator.cluster.errors import ApiError

    try:
        connection = cluster.connect(namespace, context)
        model = connection.model(name)
        if "canary" not in model["spec"]:
            raise click.ClickException(f"{name} has no canary (spec.canary)")
        if not force and (why := obstacle(model)):
            raise click.ClickException(one_line(f"{why}. To promote it anyway, add --force"))
        connection.api.patch(model, kinds.TRITON_MODEL, *(promotion(model) if keep else []), *removal(model))
    except (cluster.UnreachableError, ApiError) as error:
        raise click.ClickException(one_line(str(error))) from None
    done = "the canary is the spec now" if keep else "the canary is removed"
    click.echo(one_line(f"{done}. {_IN_GIT}. To follow: kubectl triton status {name} --watch"))


def obstacle(model: Object) -> str:
    """Returns why the canary isn't promoted without --force; "" if nothing speaks against it."""
    said = next((c for c in status_of(model).conditions if c.type == CANARY), None)
    if said is None or said.observed_generation < model["metadata"].get("generation", 0):
        return "the operator hasn't processed the latest change of the spec yet"
    if said.status == "True" and said.reason != "NoRequests":
        return ""
    return f"the canary isn't tried: {said.reason}: {said.message}"


def promotion(model: Object) -> list[Object]:
    """Returns the steps of a JSON patch that put what the canary sets into the spec."""
    canary = model["spec"]["canary"]
    steps: list[Object] = []
    if "modelImage" in canary:
        steps.append(
            {"op": "replace", "path": "/spec/modelImage/reference", "value": canary["modelImage"]["reference"]}
        )
    if "server" in canary:
        steps.append({"op": "add", "path": "/spec/server/image", "value": canary["server"]["image"]})
    if "models" in canary:
        steps.append({"op": "add", "path": "/spec/models", "value": canary["models"]})
    return steps


def removal(model: Object) -> list[Object]:
    """Returns the steps of a JSON patch that remove the canary, if it is still the same."""
    path = "/spec/canary"
    return [{"op": "test", "path": path, "value": model["spec"]["canary"]}, {"op": "remove", "path": path}]
