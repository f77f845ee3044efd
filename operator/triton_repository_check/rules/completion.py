"""Checks of auto_complete_config in model.py, which completes config.pbtxt when the server loads the model."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Any

from triton_repository_check.fields import table
from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.remedies import enum_value
from triton_repository_check.rules.base import Checks, each_model, error, listed, warning
from triton_repository_check.rules.calls import constants, literal
from triton_repository_check.rules.source import Function, classes, inside, place, trees
from triton_repository_check.schema import DataType, ModelConfig, type_name

CODES = {
    "TR317": "model.py: auto_complete_config contradicts config.pbtxt",
}

_REQUIRED = ("name", "data_type", "dims")
_DATA_TYPE = table(ModelConfig.DESCRIPTOR.fields_by_name["input"].message_type)["data_type"]
_ALLOWED = {"add_input": (*_REQUIRED, "optional"), "add_output": _REQUIRED}


def completion(_: Repository, model: Model) -> Iterator[Finding]:
    """TR317: auto_complete_config contradicts config.pbtxt, so that the backend rejects the model.

    Follows ModelConfig in triton_python_backend_utils.py.
    """
    for file, tree in trees(model):
        for node in classes(tree):
            for method in node.body:
                if isinstance(method, Function) and method.name == "auto_complete_config":
                    judged: set[int] = set()
                    for call, name, value in _calls(method):
                        judged |= {id(inner) for inner in ast.walk(call)}
                        if why := _fault(model.config, name, value):
                            remedy = "correct it, or correct config.pbtxt"
                            yield error(file, "TR317", f"{name}: {why}", remedy, place(call))
                    yield from _declarations(file, method, judged, constants(tree))


def _declarations(file: str, method: Function, judged: set[int], texts: dict[str, str]) -> Iterator[Finding]:
    """TR317: a tensor in a list, or behind a condition, has a data type that doesn't exist. `texts`: constants."""
    stored = Counter(
        node.id for node in inside(method) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    for node in inside(method):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))) if stored[name] == 1:
                texts = {**texts, name: text}
    for node in inside(method):
        if isinstance(node, ast.Dict) and id(node) not in judged:
            pairs = {key.value: value for key, value in zip(node.keys, node.values, strict=True)
                     if isinstance(key, ast.Constant)}  # fmt: skip
            kind = pairs.get("data_type")
            if "dims" in pairs and kind is not None and (why := _unknown_type(literal(kind, texts))):
                yield warning(file, "TR317", why, "correct it, unless the code never runs", place(kind))


def _calls(method: Function) -> Iterator[tuple[ast.Call, str, Any]]:
    """Returns the calls with known arguments that the function certainly makes: those before the first condition."""
    values: dict[str, Any] = {}
    for statement in method.body:
        match statement:
            case ast.Expr(value=ast.Constant()):
                continue
            case ast.Assign(targets=[ast.Name(id=name)], value=expression):
                values[name] = _literal(expression)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(), attr=attr), args=args) as call):
                if len(args) == 1 and not call.keywords:
                    argument = args[0]
                    value = values.get(argument.id) if isinstance(argument, ast.Name) else _literal(argument)
                    if value is not None:
                        yield call, attr, value
                elif attr == "set_dynamic_batching" and not args:
                    yield call, attr, True
            case _:
                return


def _literal(node: ast.expr) -> Any:
    """Returns the value of a constant expression; None for others, also for numbers that Python can't print."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        node = ast.Dict([ast.Constant(pair.arg) for pair in node.keywords], [pair.value for pair in node.keywords])
    try:
        value = ast.literal_eval(node)
        repr(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value


def _fault(config: Any, name: str, value: Any) -> str:
    """Returns why the backend rejects the call; empty if it accepts it."""
    if name in _ALLOWED and isinstance(value, dict):
        return _tensor_fault(config, name, value)
    if name == "set_max_batch_size" and isinstance(value, int):
        return _over(config, value)
    if name == "set_dynamic_batching" and config is not None and config.HasField("sequence_batching"):
        return "config.pbtxt sets sequence_batching"
    if name == "set_model_transaction_policy" and isinstance(value, dict):
        if strange := [key for key in value if key != "decoupled"]:
            return f"{listed(strange)} isn't allowed, only decoupled"
        is_set = config is not None and config.HasField("model_transaction_policy")
        if is_set and "decoupled" in value and value["decoupled"] != config.model_transaction_policy.decoupled:
            return f"decoupled is {value['decoupled']}, but {not value['decoupled']} in config.pbtxt"
    return ""


def _over(config: Any, value: int) -> str:
    most = config.max_batch_size if config is not None else 0
    return f"max_batch_size is {value}, but {most} in config.pbtxt" if most > value else ""


def _unknown_type(kind: Any) -> str:
    """Returns why a data type doesn't exist; empty if it exists, or isn't known."""
    if not isinstance(kind, str) or (kind in DataType.keys() and kind != "TYPE_INVALID"):  # noqa: SIM118 - an enum
        return ""
    meant = enum_value(_DATA_TYPE, kind)
    return f"there is no data_type {kind}" + (f"; did you mean {meant}?" if meant else "")


def _tensor_fault(config: Any, name: str, value: dict[Any, Any]) -> str:
    if strange := [key for key in value if key not in _ALLOWED[name]]:
        return f"{listed(strange)} isn't allowed, only {listed(_ALLOWED[name])}"
    if lacking := [key for key in _REQUIRED if key not in value]:
        return f"{listed(lacking)} is missing"
    if why := _unknown_type(value["data_type"]):
        return why
    side = getattr(config, name.removeprefix("add_")) if config is not None else ()
    declaration = next((tensor for tensor in side if tensor.name == value["name"]), None)
    if declaration is None:
        return ""
    if declaration.data_type != DataType.TYPE_INVALID and type_name(declaration.data_type) != value["data_type"]:
        return f"{declaration.name!r} is {value['data_type']}, but {type_name(declaration.data_type)} in config.pbtxt"
    if declaration.dims and list(declaration.dims) != value["dims"]:
        return f"the dims of {declaration.name!r} are {value['dims']}, but {list(declaration.dims)} in config.pbtxt"
    return ""


CHECKS: Checks = (("model.py: auto_complete_config", each_model(completion)),)
