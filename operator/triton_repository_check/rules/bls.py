"""Checks of requests from model.py to other models of the repository (business logic scripting)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from triton_repository_check.expected import Expected
from triton_repository_check.findings import Finding
from triton_repository_check.graph import components, loaded, way
from triton_repository_check.model import Model, Repository
from triton_repository_check.places import Node
from triton_repository_check.rules.base import MAX_FINDINGS, Checks, each_model, error, instead, listed, near, warning
from triton_repository_check.rules.calls import certain, constants, keyword, literal
from triton_repository_check.rules.kinds import Names, Scope
from triton_repository_check.rules.source import Function, inside, may_complete_config, place, trees

CODES = {
    "TR314": "model.py: the called model doesn't exist",
    "TR320": "model.py: the called model doesn't have the tensor",
    "TR321": "model.py: models call each other in a ring",
    "TR329": "model.py: it calls a model during its warm-up",
    "TR330": "model.py: the called model isn't loaded, or not in this version",
    "TR331": "model.py: it calls a decoupled model without decoupled=True",
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a model whose name the source contains.

    - `named`: where the source names the model.
    - `always`: whether each request to the calling model reaches it.
    - `runs`: where it is sent without a word about decoupled, each with whether that is always reached.
    """

    file: str
    target: str
    named: ast.expr
    call: ast.Call
    always: bool
    runs: Sequence[tuple[ast.Call, bool]]
    texts: dict[str, str]
    names: Names


def requests(model: Model) -> Iterator[Request]:
    """Returns the requests of model.py."""
    if not any("InferenceRequest" in text for text in model.sources.values()):
        return  # most models; parsing takes long
    for file, tree in trees(model):
        names, texts = Names(tree), constants(tree)
        always, runs = {id(node) for node in certain(tree)}, _runs(tree, names)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and names.of(node.func) == "InferenceRequest":
                name = keyword(node, "model_name")
                target = literal(name, texts) if name is not None else None
                if name is not None and target is not None:
                    sent = [(run, id(run) in always) for run in runs.get(id(node), ())]
                    yield Request(file, target, name, node, id(node) in always, sent, texts, names)


def _runs(tree: ast.Module, names: Names) -> Mapping[int, list[ast.Call]]:
    """Returns the calls of exec that don't say decoupled, by the id of the expression that makes the request."""
    runs: dict[int, list[ast.Call]] = {}
    for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
        scope = Scope(function, names)
        for node in inside(function):
            match node:
                case ast.Call(func=ast.Attribute(value=value, attr="exec" | "async_exec"), args=[], keywords=keywords):
                    if not {keyword.arg for keyword in keywords} & {"decoupled", None}:
                        runs.setdefault(id(scope.follow(value)), []).append(node)
    return runs


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


def served(repository: Repository, expected: Expected) -> Iterator[Finding]:
    """TR329, TR330: the server has no such model or version: never, not at start, or not during a warm-up."""
    names = loaded(repository, expected.load_models)
    for model in repository.models.values():
        warms = model.config is not None and bool(model.config.model_warmup)
        for request in islice(requests(model), MAX_FINDINGS):
            target = repository.models.get(request.target)
            level = error if request.always else warning
            if target is not None and warms:
                message = (
                    f"calls model {target.name!r} during its warm-up, when the server isn't ready: it doesn't load"
                )
                remedy = "remove model_warmup from config.pbtxt, or warm up the called model instead"
                yield level(request.file, "TR329", message, remedy, place(request.named))
            argument = keyword(request.call, "model_version")
            number = -1 if argument is None else _number(argument)
            if target is not None and model.name in names and target.name not in names:
                message = f"calls model {target.name!r}, which spec.server.loadModels leaves out"
                remedy = "add it to spec.server.loadModels, unless it is loaded later"
                yield warning(request.file, "TR330", message, remedy, place(request.named))
            elif target is not None and target.served and number not in (-1, None, *target.served):
                message = f"calls version {number} of model {target.name!r}, which the server doesn't load"
                remedy = f"use one of its versions: {listed(target.served)}; or add it to version_policy"
                yield level(request.file, "TR330", message, remedy, place(argument or request.call))


def decoupled(repository: Repository, model: Model) -> Iterator[Finding]:
    """TR331: exec of a request to a decoupled model without decoupled=True, which fails."""
    for request in requests(model):
        target = repository.models.get(request.target)
        if target is None or target.config is None or not target.config.model_transaction_policy.decoupled:
            continue
        for run, always in request.runs:
            message = f"calls model {target.name!r}, which is decoupled, without decoupled=True"
            remedy = "pass decoupled=True, and take each response from the result"
            yield (error if always else warning)(request.file, "TR331", message, remedy, place(run))


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


def rings(repository: Repository, _: Expected) -> Iterator[Finding]:
    """TR321: a request comes back to the model that waits for it, so that both wait forever."""
    calls = [(caller, call) for model in repository.models.values() for caller, call in _calls(repository, model)]
    edges: dict[_Version, list[_Version]] = {}
    for caller, call in calls:
        edges.setdefault(caller, []).append(call.target)
    for model in repository.models.values():
        for step in model.steps if model.served else ():
            if (target := _version(repository, step.model_name, step.model_version)) is not None:
                edges.setdefault((model.name, model.served[-1]), []).append(target)
    numbers = components({**{target: [] for targets in edges.values() for target in targets}, **edges})
    ways: dict[tuple[_Version, _Version], str] = {}
    for caller, call in calls:
        if numbers[caller] == numbers[call.target]:
            ends = caller, call.target
            if ends not in ways:
                ring = (call.target,) if caller == call.target else way(edges, call.target, caller)
                ways[ends] = " → ".join(name for name, _ in (caller, *ring))
            yield (error if call.always and caller == call.target else warning)(
                call.file,
                "TR321",
                f"the model calls itself: {ways[ends]}; it waits for its own instance",
                "call another model",
                call.place,
            )


_Version = tuple[str, int]
"""A model's name and version."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A request to a version of a model, without its syntax tree."""

    file: str
    target: _Version
    always: bool
    place: Node


def _calls(repository: Repository, model: Model) -> Iterator[tuple[_Version, _Call]]:
    """Returns the requests of model.py to known versions, at most MAX_FINDINGS, each with the version that sends it."""
    for request in islice(requests(model), MAX_FINDINGS):
        argument = keyword(request.call, "model_version")
        target = _version(repository, request.target, -1 if argument is None else _number(argument))
        version = request.file.split("/")[1]
        if target is not None and version.isdecimal():
            yield (model.name, int(version)), _Call(request.file, target, request.always, place(request.call))


def _number(node: ast.expr) -> int | None:
    """Returns the number that an expression certainly is; None if it is unknown."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
    return None


def _version(repository: Repository, name: str, number: int | None) -> _Version | None:
    """Returns the served version that a request reaches; -1 is the latest. None if there is none, or it is unknown."""
    served = repository.models[name].served if name in repository.models else ()
    if number == -1 and served:
        return name, served[-1]
    return (name, number) if number is not None and number in served else None


def _named(node: ast.expr | None, request: Request) -> Iterator[tuple[ast.expr, str | None]]:
    """Returns the elements of a list of tensors or of names, each with its name, None if that is unknown."""
    for element in node.elts if isinstance(node, ast.List) else ():
        name = element
        if isinstance(element, ast.Call) and request.names.of(element.func) == "Tensor" and element.args:
            name = element.args[0]
        yield name, literal(name, request.texts)


CHECKS: Checks = (
    ("model.py: calls of models", each_model(called)),
    ("model.py: tensors of called models", each_model(tensors)),
    ("model.py: rings", rings),
    ("model.py: called models that aren't there", served),
    ("model.py: calls of decoupled models", each_model(decoupled)),
)
