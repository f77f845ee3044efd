"""Checks of the types of the arrays that model.py returns, against config.pbtxt."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.rules.base import Checks, each_model, error, warning
from triton_repository_check.rules.calls import constants, literal, mapped
from triton_repository_check.rules.kinds import TYPES, Names, Scope
from triton_repository_check.rules.source import Function, inside, place, trees
from triton_repository_check.schema import type_name

CODES = {
    "TR319": "model.py: an output has another type than config.pbtxt declares",
}


def outputs(repository: Repository, model: Model) -> Iterator[Finding]:
    """TR319: an output has another type than config.pbtxt declares.

    The server doesn't compare them: a client gets the wrong type, and the next step of an ensemble fails. It can't
    return an array of Python strings at all.
    """
    if model.config is None:
        return
    declared = {t.name: type_name(t.data_type).removeprefix("TYPE_") for t in model.config.output}
    used = mapped(repository, model)
    for file, tree in trees(model):
        names, values = Names(tree), constants(tree)
        for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
            scope = Scope(function, names)
            for node in _returned(function, names):
                name = literal(node.args[0], values)
                data_type = declared.get(name or "")
                dtype = scope.dtype(node.args[1])
                if not data_type or data_type == "INVALID" or not dtype or TYPES[dtype] == data_type:
                    continue
                fails = dtype == "str" or name in used
                yield (error if fails else warning)(
                    file,
                    "TR319",
                    f"output {name!r} is an array of {'Python strings' if dtype == 'str' else dtype}, "
                    f"but TYPE_{data_type} in config.pbtxt",
                    _remedy(data_type),
                    place(node),
                )


def _remedy(data_type: str) -> str:
    if data_type == "STRING":
        return "make the array with dtype=object, or of bytes"
    dtype = next((ours for ours, theirs in TYPES.items() if theirs == data_type), "")
    dtype = "bool_" if dtype == "bool" else dtype  # numpy 1.24 to 1.26 have no np.bool
    return f"add .astype(np.{dtype}), or dtype=np.{dtype}" if dtype else "convert the array to the declared type"


def _returned(function: Function, names: Names) -> Iterator[ast.Call]:
    """Returns the tensors that a function creates, without those for requests to other models."""
    calls = [node for node in inside(function) if isinstance(node, ast.Call)]
    requests = {id(inner) for call in calls if names.of(call.func) == "InferenceRequest" for inner in ast.walk(call)}
    has_requests = any(names.of(call.func) == "InferenceRequest" for call in calls)
    responses = {id(inner) for call in calls if names.of(call.func) == "InferenceResponse" for inner in ast.walk(call)}
    for call in calls:
        own = id(call) in responses if has_requests else id(call) not in requests
        if own and names.of(call.func) == "Tensor" and len(call.args) == 2:
            yield call


CHECKS: Checks = (("model.py: types of outputs", each_model(outputs)),)
