"""Checks of the arguments of pb_utils' functions: each request that reaches a wrong call fails.

The signatures are those of server 2.51 (pb_stub.cc in python_backend), which takes no other types.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.rules.base import Checks, each_model, error, listed, near, warning
from triton_repository_check.rules.calls import certain
from triton_repository_check.rules.kinds import (
    ARRAY,
    ERROR,
    EXCEPTION,
    LIST,
    NUMBER,
    REQUEST,
    REQUESTS,
    RESPONSE,
    TENSOR,
    TEXT,
    Names,
    Scope,
)
from triton_repository_check.rules.source import Function, inside, place, trees

CODES = {
    "TR318": "model.py: a call of pb_utils has the wrong arguments",
}

_ANYTHING = frozenset({TEXT, NUMBER, LIST, EXCEPTION, REQUESTS, TENSOR, RESPONSE, ERROR, REQUEST, ARRAY})
_LISTS = frozenset({LIST, REQUESTS})
Signature = tuple[tuple[str, frozenset[str], str], ...]
"""Each argument's name, the kinds of values that it takes, and what to pass."""

SIGNATURES: dict[str, Signature] = {
    "Tensor": (
        ("the name", frozenset({TEXT}), 'pass the name and the array: pb_utils.Tensor("NAME", array)'),
        ("the value", frozenset({ARRAY}), "pass a numpy array as the second argument"),
    ),
    "InferenceResponse": (
        ("output_tensors", _LISTS, "pass a list of tensors: output_tensors=[…]"),
        ("error", frozenset({ERROR}), "pass error=pb_utils.TritonError(message)"),
    ),
    "TritonError": (
        ("message", frozenset({TEXT}), "pass a string as the message, e.g. str(error)"),
        ("code", frozenset(), "pass a code such as pb_utils.TritonError.INVALID_ARG"),
    ),
    "get_input_tensor_by_name": (
        ("inference_request", frozenset({REQUEST}), "pass one request, then the name"),
        ("name", frozenset({TEXT}), "pass one request, then the name"),
    ),
    "get_output_tensor_by_name": (
        ("inference_response", frozenset({RESPONSE}), "pass the response, then the name"),
        ("name", frozenset({TEXT}), "pass the response, then the name"),
    ),
    "InferenceRequest": (
        ("request_id", frozenset({TEXT}), "pass a string"),
        ("correlation_id", _ANYTHING, ""),
        ("inputs", _LISTS, "pass a list of tensors: inputs=[…]"),
        ("requested_output_names", _LISTS, "pass a list of names: requested_output_names=[…]"),
        ("model_name", frozenset({TEXT}), "pass the model's name as a string"),
        ("model_version", frozenset({NUMBER}), "pass a whole number; -1 is the latest version"),
    ),
    **{
        f"Logger.{name}": (("message", frozenset({TEXT}), "pass one string"),)
        for name in ("log_info", "log_warn", "log_error", "log_verbose")
    },
}
_REQUIRED = {
    "Tensor": ("the name", "the value"),
    "TritonError": ("message",),
    "get_input_tensor_by_name": ("inference_request", "name"),
    "get_output_tensor_by_name": ("inference_response", "name"),
    "InferenceRequest": ("inputs", "requested_output_names", "model_name"),
}
_MORE_KEYS = {
    "InferenceResponse": frozenset({"parameters"}),
    "InferenceRequest": frozenset({"flags", "timeout", "preferred_memory", "trace", "parameters"}),
}
_ELEMENTS = {"output_tensors": TENSOR, "inputs": TENSOR, "requested_output_names": TEXT}


def arguments(_: Repository, model: Model) -> Iterator[Finding]:
    """TR318: a call of pb_utils has the wrong arguments. It's a warning where the source doesn't prove that it runs."""
    for file, tree in trees(model):
        names, reached = Names(tree), {id(node) for node in certain(tree)}
        for function in (node for node in ast.walk(tree) if isinstance(node, Function)):
            scope = Scope(function, names)
            for node in inside(function):
                level = error if id(node) in reached else warning
                if isinstance(node, ast.Call) and (name := names.of(node.func)) in SIGNATURES:
                    if why := _fault(name, node, scope):
                        yield level(file, "TR318", f"pb_utils.{name}: {why[0]}", why[1], place(node))
                elif why := _awaited(node, function, scope):
                    yield level(file, "TR318", why[0], why[1], place(node))  # type: ignore[arg-type]


def _fault(name: str, call: ast.Call, scope: Scope) -> tuple[str, str] | None:
    """Returns what is wrong with a call, and what to do; None if nothing is certainly wrong."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    signature = SIGNATURES[name]
    names = [parameter for parameter, _, _ in signature]
    if name == "Tensor" and call.keywords:
        return "it takes no arguments by name", signature[0][2]
    for keyword in call.keywords:
        if keyword.arg not in names and keyword.arg not in _MORE_KEYS.get(name, ()):
            close = near(str(keyword.arg), names)
            return f"it has no argument {keyword.arg}", f"did you mean {close}?" if close else f"use {listed(names)}"
    values = {**dict(zip(names, call.args, strict=False)), **{str(k.arg): k.value for k in call.keywords}}
    if len(call.args) > len(names) and name not in _MORE_KEYS:
        return f"it takes {len(names)} arguments, got {len(call.args)}", signature[0][2]
    if lacking := [parameter for parameter in _REQUIRED.get(name, ()) if parameter not in values]:
        return f"{listed(lacking)} is missing", next(how for p, _, how in signature if p == lacking[0])
    for parameter, allowed, how in signature:
        if parameter in values and (why := _wrong(parameter, values[parameter], allowed, scope)):
            return why, how
    return None


def _wrong(parameter: str, value: ast.expr, allowed: frozenset[str], scope: Scope) -> str:
    kind = scope.kind(value) or (_no_array(value, scope) if allowed == {ARRAY} else "")
    if kind and kind not in allowed:
        return f"{parameter} is {kind}"
    element_kind = _ELEMENTS.get(parameter)
    if element_kind and isinstance(value, ast.List):
        for element in value.elts:
            if (kind := scope.kind(element)) and kind != element_kind:
                return f"{parameter} contains {kind}"
    return ""


def _no_array(value: ast.expr, scope: Scope) -> str:
    """Returns what a value is that is certainly no array; empty if it may be one."""
    match value:
        case ast.Dict() | ast.DictComp():
            return "a dict"
        case ast.Tuple():
            return "a tuple"
        case ast.Constant(value=None):
            return "None"
        case ast.Call(func=function) if scope.names.of(function) == "get_input_tensor_by_name":
            return TENSOR
    return ""


def _awaited(node: ast.AST, function: Function, scope: Scope) -> tuple[str, str] | None:
    match node:
        case ast.Await(value=ast.Call(func=ast.Attribute(value=request, attr="exec"))):
            if scope.kind(request) == REQUEST:
                return "exec of an InferenceRequest returns a response, which can't be awaited", (
                    "remove await, or call async_exec"
                )
        case ast.Call(func=ast.Attribute(value=request, attr="async_exec")):
            # Another function may return the coroutine to one that awaits it.
            outer = isinstance(function, ast.FunctionDef) and function.name in ("initialize", "execute")
            if outer and scope.kind(request) == REQUEST:
                return "async_exec needs a coroutine, but the function isn't async", (
                    f"write async def {function.name} and await the call, or call exec"
                )
    return None


CHECKS: Checks = (("model.py: arguments of pb_utils", each_model(arguments)),)
