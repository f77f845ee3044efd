"""`kubectl triton promote` and `abort`: end a canary."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from kubectl_triton import options
from triton_operator.api import kinds
from triton_operator.api.status import CANARY, ENDED, GOOD, UNDECIDED, Condition, status_of
from triton_repository_check.text import one_line

if TYPE_CHECKING:
    from kubectl_triton.cluster import Cluster

Object = dict[str, Any]
_LOOK_SECONDS = 2.0
_IN_GIT = "If a GitOps tool writes it, change its source too, or it sets this back"


@click.command("promote")
@click.argument("name")
@click.option("--force", is_flag=True, help="Also if the canary hasn't been found good.")
@click.option("--wait", is_flag=True, help="Wait until the canary is good; fail if it is worse than the other servers.")
@options.cluster
def promote(name: str, force: bool, wait: bool, namespace: str | None, context: str | None) -> None:
    """Makes the canary of the TritonModel NAME its spec, and ends it.

    What spec.canary sets, such as its model image, goes into the spec, and spec.canary goes. Then the other servers are
    replaced one after the other, and the canary's end.
    """
    if force and wait:
        raise click.UsageError("--force and --wait exclude each other")
    _end(name, namespace, context, keep=True, force=force, wait=wait)


@click.command("abort")
@click.argument("name")
@options.cluster
def abort(name: str, namespace: str | None, context: str | None) -> None:
    """Ends the canary of the TritonModel NAME: removes spec.canary. The other servers stay as they are."""
    _end(name, namespace, context, keep=False, force=True, wait=False)


def _end(name: str, namespace: str | None, context: str | None, *, keep: bool, force: bool, wait: bool) -> None:
    from kubectl_triton import cluster  # imports the client, which takes half a second
    from triton_operator.cluster.errors import ApiError

    try:
        connection = cluster.connect(namespace, context)
        model = _judged(connection, name) if wait else _with_canary(connection, name)
        if not force and (why := obstacle(model)):
            raise click.ClickException(one_line(f"{why}. To promote it anyway, add --force"))
        connection.api.patch(model, kinds.TRITON_MODEL, *(promotion(model) if keep else []), *removal(model))
    except (cluster.UnreachableError, ApiError) as error:
        raise click.ClickException(one_line(str(error))) from None
    done = "the canary is the spec now" if keep else "the canary is removed"
    click.echo(one_line(f"{done}. {_IN_GIT}. To follow: kubectl triton status {name} --watch"))


def _with_canary(connection: Cluster, name: str) -> Object:
    model = connection.model(name)
    if "canary" not in model["spec"]:
        raise click.ClickException(f"{name} has no canary (spec.canary)")
    return model


def _judged(connection: Cluster, name: str) -> Object:
    """Returns the TritonModel when its canary is good or worse, or won't be judged.

    Prints what is said of it meanwhile. Of errors only that of the first look is raised: a later one may end.
    """
    from kubectl_triton.cluster import UnreachableError
    from triton_operator.cluster.errors import ApiError

    model, printed = _with_canary(connection, name), ""
    while True:
        said, verdict = _said(model)
        if verdict in {GOOD, *ENDED} or (said and said.reason == "NoRequests"):
            return model
        words = f"{said.reason}: {said.message}" if said else ""
        if words != printed:
            click.echo(one_line(words), err=True)
            printed = words
        time.sleep(_LOOK_SECONDS)
        try:
            model = _with_canary(connection, name)
        except (UnreachableError, ApiError) as error:
            click.echo(one_line(str(error)), err=True)


def obstacle(model: Object) -> str:
    """Returns why the canary isn't promoted without --force; "" if nothing speaks against it."""
    said, verdict = _said(model)
    if said is None:
        return "the operator hasn't processed the latest change of the spec yet"
    if said.status != "True" or said.reason == "NoRequests":
        return f"the canary isn't tried: {said.reason}: {said.message}"
    return "" if verdict == GOOD else f"the canary hasn't been found good: {said.message}"


def _said(model: Object) -> tuple[Condition | None, str]:
    """Returns the condition Canary and the verdict; None and "" until they are about the current spec."""
    status = status_of(model)
    said = next((c for c in status.conditions if c.type == CANARY), None)
    if said is None or said.observed_generation < model["metadata"].get("generation", 0):
        return None, ""
    return said, status.canary.verdict if status.canary else UNDECIDED


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
