"""Checks of requests from model.py to other models of the repository (business logic scripting)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.rules.base import error, instead, listed, near, warning
from triton_repository_check.rules.calls import certain, constants, keyword, literal
from triton_repository_check.rules.kinds import Names
from triton_repository_check.rules.source import may_complete_config, place, trees


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a model whose name the source contains."""

    file: str
    target: str
    named: ast.expr
    """Where the source names the model."""
    call: ast.Call
    always: bool
    """Whether each request to the calling model reaches it."""
    texts: dict[str, str]
    names: Names


def requests(model: Model) -> Iterator[Request]:
    """Returns the requests of model.py."""
    for file, tree in trees(model):
        names, texts = Names(tree), constants(tree)
        always = {id(node) for node in certain(tree)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and names.of(node.func) == "InferenceRequest":
                name = keyword(node, "model_name")
                target = literal(name, texts) if name is not None else None
                if name is not None and target is not None:
                    yield Request(file, target, name, node, id(node) in always, texts, names)


def called(repository: Repository, model: Model) -> Iterator[Finding]:
    """TR314: a request names a model that isn't in the repository."""
    for request in requests(model):
        if request.target not in repository.models:
            close = near(request.target, repository.models.keys())
            yield warning(
                request.file,
                "TR314",
                f"calls model {request.target!r}, which isn't in the repository",
                f"did you mean {close!r}?"
                if close
                else "add the model, unless the server loads it from another repository",
                place(request.named),
            )


def tensors(repository: Repository, model: Model) -> Iterator[Finding]:
    """TR320: the called model doesn't declare a tensor of the request, or the request lacks an input."""
    for request in requests(model):
        target = repository.models.get(request.target)
        if target is None or target.config is None or may_complete_config(target):
            continue
        level = error if request.always else warning
        inputs = {t.name for t in target.config.input}
        outputs = {t.name for t in target.config.output}
        value = keyword(request.call, "inputs")
        for node, name in _named(keyword(request.call, "requested_output_names"), request):
            if outputs and name is not None and name not in outputs:
                message = f"asks {target.name!r} for output {name!r}, which it doesn't declare"
                yield level(request.file, "TR320", message, instead(name, outputs, "a declared output"), place(node))
        elements = list(_named(value, request))
        for node, name in elements:
            if inputs and name is not None and name not in inputs:
                message = f"passes input {name!r} to {target.name!r}, which doesn't declare it"
                yield level(request.file, "TR320", message, instead(name, inputs, "a declared input"), place(node))
        if not isinstance(value, ast.List) or len(elements) != len(value.elts) or not all(name for _, name in elements):
            continue
        needed = {t.name for t in target.config.input if not t.optional} - {name for _, name in elements}
        if needed and not any(name not in inputs for _, name in elements):
            yield level(
                request.file,
                "TR320",
                f"doesn't pass input {listed(sorted(needed))} of {target.name!r}",
                "add it to inputs",
                place(request.call),
            )


def rings(repository: Repository, model: Model) -> Iterator[Finding]:
    """TR321: a request comes back to the model that waits for it, so that both wait forever."""
    for request in requests(model):
        way = _way(repository, request.target, model.name)
        if way:
            yield (error if request.always and len(way) == 1 else warning)(
                request.file,
                "TR321",
                f"the model calls itself: {' → '.join((model.name, *way))}; it waits for its own instance",
                "call another model",
                place(request.call),
            )


def _way(repository: Repository, start: str, end: str) -> tuple[str, ...]:
    """Returns the shortest chain of calls and steps from `start` to `end`; empty if there is none."""
    chains: list[tuple[str, ...]] = [(start,)]
    seen = {start}
    while chains:
        chain = chains.pop(0)
        if chain[-1] == end:
            return chain
        model = repository.models.get(chain[-1])
        called_by = [request.target for request in requests(model)] if model else []
        for name in (*called_by, *(step.model_name for step in (model.steps if model else ()))):
            if name not in seen:
                seen.add(name)
                chains.append((*chain, name))
    return ()


def _named(node: ast.expr | None, request: Request) -> Iterator[tuple[ast.expr, str | None]]:
    """Returns the elements of a list of tensors or of names, each with its name, None if that is unknown."""
    for element in node.elts if isinstance(node, ast.List) else ():
        name = element
        if isinstance(element, ast.Call) and request.names.of(element.func) == "Tensor" and element.args:
            name = element.args[0]
        yield name, literal(name, request.texts)
