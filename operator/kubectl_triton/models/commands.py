"""`kubectl triton models`, `config`, `load`, `unload` and `reload`: the models of running servers."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kubectl_triton import forward, options
from kubectl_triton.forward import ServerError
from triton_operator.api import names, server_access
from triton_repository_check.text import one_line

from . import model_text

if TYPE_CHECKING:
    from .triton import Triton

Object = dict[str, Any]
Answer = TypeVar("Answer")
_READERS = 8
"""Servers that are read at the same time."""


@dataclass(frozen=True)
class _Target:
    """The servers of one TritonModel, by pod name. `mixed`: whether their pods have different templates."""

    model: Object
    servers: tuple[str, ...]
    namespace: str
    context: str | None
    mixed: bool = False
    failures: dict[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def triton(self, pod: str) -> Iterator[Triton]:
        """Yields a client of the server in this pod. Raises ServerError."""
        from . import triton

        with (
            forward.forward(self.namespace, pod, names.PORTS["grpc"], self.context) as address,
            triton.connect(address) as client,
        ):
            yield client

    def each(self, ask: Callable[[str, Triton], Answer], parallel: int) -> dict[str, Answer]:
        """Returns the answer of each server, and reports the servers that have none."""

        def reply(pod: str) -> Answer | None:
            try:
                with self.triton(pod) as client:
                    return ask(pod, client)
            except ServerError as error:
                self.failures[pod] = model_text.failure(str(error))
                click.echo(one_line(f"{pod}: {self.failures[pod]}"), err=True)
                return None

        with ThreadPoolExecutor(parallel) as threads:
            answers = dict(zip(self.servers, threads.map(reply, self.servers), strict=True))
        return {pod: answer for pod, answer in answers.items() if answer is not None}

    def finish(self) -> None:
        """Ends the program: with 1 if a server failed."""
        sys.exit(1 if self.failures else 0)


def _target(name: str, namespace: str | None, context: str | None, *, change: bool = False) -> _Target:
    """Returns the servers that have started. `change`: whether the user wants to change their models."""
    from kubectl_triton import cluster  # the import of the client takes half a second, and `render` doesn't need it

    try:
        connection = cluster.connect(namespace, context)
        model = connection.model(name)
        pods = connection.pods(model)
        if change and not connection.may_update(name):
            raise click.ClickException(
                f"you may not update the TritonModel {name}, so you may not change the models of its servers either: "
                "ask for the role tritonmodel-developer"
            )
    except cluster.UnreachableError as error:
        raise click.ClickException(model_text.failure(one_line(str(error)))) from None
    if change and not model_text.explicit(model):
        raise click.ClickException(model_text.NOT_EXPLICIT)
    if flag := server_access.uses_tls(model["spec"].get("server", {}).get("args", [])):
        raise click.ClickException(model_text.TLS.format(flag))
    servers = sorted(pod.name for pod in pods if pod.server_started)
    if not servers:
        raise click.ClickException(f"no server of {name} has started: see `kubectl triton status {name}`")
    templates = {pod.template for pod in pods if pod.server_started}
    return _Target(model, tuple(servers), connection.namespace, context, mixed=len(templates) > 1)


@click.command("models")
@click.argument("name")
@options.cluster
def models(name: str, namespace: str | None, context: str | None) -> None:
    """Shows the models on every server of the TritonModel NAME: state, instances, memory, and Triton's reason.

    Exits with 1 if a server can't be read.
    """
    target = _target(name, namespace, context)
    listings = target.each(lambda _, triton: triton.models(), _READERS)
    click.echo(model_text.listing(target.model, listings, mixed=target.mixed))
    target.finish()


@click.command("config")
@click.argument("name")
@click.argument("model")
@click.option("--version", default="", help="Version of the model. Default: the latest one.")
@click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True)
@options.cluster
def config(name: str, model: str, version: str, output: str, namespace: str | None, context: str | None) -> None:
    """Prints the configuration with which the servers of the TritonModel NAME run MODEL.

    It contains what Triton has added to config.pbtxt. A comment marks what spec.models sets. Exits with 1 if a server
    can't be read.
    """
    target = _target(name, namespace, context)
    answers = target.each(lambda _, triton: triton.config(model, version), _READERS)
    settings = model_text.settings(target.model, model)
    texts = {pod: model_text.configuration(answer, output, settings) for pod, answer in answers.items()}
    if texts:
        first, text = next(iter(texts.items()))
        click.echo(text)
        others = sorted(pod for pod, other in texts.items() if other != text)
        if others:
            click.echo(f"this is the configuration on {first}; it differs on {', '.join(others)}", err=True)
    target.finish()


def _change(
    verb: str,
    name: str,
    model: str,
    timeout: int,
    parallel: int,
    namespace: str | None,
    context: str | None,
    force: bool = False,
) -> None:
    """Loads, unloads or reloads the model on all servers, and prints a result for each."""
    target = _target(name, namespace, context, change=True)
    entry = model_text.entrypoint(target.model)

    def change(pod: str, triton: Triton) -> bool:
        started, rows = time.monotonic(), triton.models().rows
        problem = model_text.obstacle(verb, model, rows, "" if force else entry)
        if problem:
            raise ServerError(problem)
        click.echo(f"{pod}: {verb}ing {model}", err=True)
        act = {"load": triton.load, "reload": triton.reload, "unload": triton.unload}[verb]
        act(model, float(timeout))
        ensembles = model_text.dependents(model, rows) if verb == "unload" else []
        click.echo(f"{pod}: {verb}ed {' and '.join([model, *ensembles])} in {time.monotonic() - started:.1f} s")
        return True

    successes = target.each(change, parallel)
    click.echo(f"{verb}ed {model} on {len(successes)} of {len(target.servers)} servers")
    for note in model_text.drift(target.model, model, loaded=verb != "unload"):
        click.echo(note, err=True)
    target.finish()


@click.command("load")
@options.change
@options.cluster
def load(**arguments: Any) -> None:
    """Loads MODEL on all servers of the TritonModel NAME, one server after the other.

    Triton loads the steps of an ensemble, too. It does nothing if MODEL is loaded and its files haven't changed. A
    server that starts later loads only spec.server.loadModels. Exits with 1 if a server fails.
    """
    _change("load", **arguments)


@click.command("reload")
@options.change
@options.cluster
def reload(**arguments: Any) -> None:
    """Loads MODEL again on all servers of the TritonModel NAME, one server after the other.

    The old one serves until the new one is ready, and goes on if the new one doesn't load. For this time the server
    needs memory for both. The steps of an ensemble aren't loaded again. Exits with 1 if a server fails.
    """
    _change("reload", **arguments)


@click.command("unload")
@options.change
@click.option("--force", is_flag=True, help="Unload MODEL even if the entrypoint needs it.")
@options.cluster
def unload(**arguments: Any) -> None:
    """Unloads MODEL on all servers of the TritonModel NAME, one server after the other.

    Requests for it fail from then on; running requests are finished. Triton unloads the ensembles with this step, too.
    A server that starts later loads spec.server.loadModels. Exits with 1 if a server fails.
    """
    _change("unload", **arguments)
