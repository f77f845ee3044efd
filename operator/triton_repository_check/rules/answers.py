"""Checks of what execute of model.py returns, as far as its own source shows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.rules.base import Checks, each_model, error, note, warning
from triton_repository_check.rules.kinds import Names, Scope
from triton_repository_check.rules.source import (
    Function,
    classes,
    ends_in_raise,
    imports_local_modules,
    inside,
    place,
    returns,
    trees,
)

CODES = {
    "TR309": "model.py: execute returns the wrong type",
    "TR312": "model.py: execute returns fewer responses than requests",
}

_Returned = list[tuple[ast.Return, ast.expr | None]]
"""The return statements of execute, each with its value, or what a name stands for that is bound once."""
_LIST = "return a list with one InferenceResponse for each request"
_HARMLESS = ("len", "enumerate", "zip", "range", "print")
"""Builtins that don't send a response to a request in their arguments."""
_SERVER_COLLECTS = ("dynamic_batching", "sequence_batching")
"""Schedulers that pass several requests to one execute. Without them, execute gets one request at a time."""


def answers(_: Repository, model: Model) -> Iterator[Finding]:
    """TR309, TR312: execute must return a list with one response for each request.

    In a decoupled model, it must send the responses and return None.
    """
    for file, tree in trees(model) if model.config is not None else ():
        if _mentions(tree, "set_model_transaction_policy"):
            continue  # model.py sets decoupled at run time
        for node in classes(tree):
            executes = [item for item in node.body if isinstance(item, Function) and item.name == "execute"]
            if not executes or executes[-1].decorator_list:
                continue
            execute, scope = executes[-1], Scope(executes[-1], Names(tree))
            values = [(item, item.value and scope.follow(item.value)) for item in returns(execute)]
            gives = _gives_requests_away(execute)
            sends = bool(node.bases) or _mentions(tree, "get_response_sender")
            sends = sends or (gives and imports_local_modules(model, file, tree))
            if model.config.model_transaction_policy.decoupled:
                yield from _decoupled(file, tree, execute, values, sends, gives)
                continue
            yield from _returned(file, execute, values, sends, gives)
            if any(model.config.HasField(name) for name in _SERVER_COLLECTS):
                yield from _too_few_responses(file, execute)


def _decoupled(
    file: str, tree: ast.Module, execute: Function, values: _Returned, sends: bool, gives: bool
) -> Iterator[Finding]:
    wrong = [(node, value) for node, value in values if value and (_is_list(value, execute) or _no_list(value))]
    always = len(wrong) == len(values) and isinstance(execute.body[-1], ast.Return | ast.Raise)
    if not wrong or (not always and _mentions(tree, "decoupled")):
        return  # the model supports both modes and reads its configuration
    # If the model sent all responses and the final flag, the backend only logs an error.
    empty = all(_is_empty(node, value, execute) for node, value in wrong)
    remedy = "return None" if sends else "send responses with request.get_response_sender()"
    yield (error if always and not sends and not gives else note if empty else warning)(
        file,
        "TR309",
        "execute of a decoupled model must return None, but it returns a value",
        f"{remedy}, or remove model_transaction_policy from config.pbtxt",
        place(wrong[0][0]),
    )


def _is_empty(node: ast.Return, value: ast.expr, execute: Function) -> bool:
    """Whether a returned value is an empty list, also one in a variable that is only returned."""
    name = node.value.id if isinstance(node.value, ast.Name) else ""
    used = sum(isinstance(n, ast.Name) and n.id == name for n in inside(execute))
    returned = sum(isinstance(n.value, ast.Name) and n.value.id == name for n in returns(execute))
    match value:
        case ast.List(elts=[]) | ast.Call(func=ast.Name(id="list"), args=[], keywords=[]):
            return not name or used == 1 + returned
    return False


def _returned(file: str, execute: Function, values: _Returned, sends: bool, gives: bool) -> Iterator[Finding]:
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in inside(execute)):
        if all(value is None for _, value in values):  # asyncio up to Python 3.11 treats others as a coroutine
            message = "execute is a generator, but the backend needs a list"
            yield error(file, "TR309", message, "collect the responses in a list and return it", place(execute))
        return
    if not sends and not gives:
        yield from _wrong_elements(file, execute)
    others = [(node, words) for node, value in values if value and (words := _no_list(value))]
    if others:
        message = f"execute returns {others[0][1]}, but the backend needs a list"
        level = error if len(others) == len(values) else warning
        yield level(file, "TR309", message, _LIST, place(others[0][0]))
    if all(value is None or _is_none(value) for _, value in values) and not sends and not ends_in_raise(execute):
        # The function that gets the requests may send the responses.
        yield (warning if gives else error)(file, "TR309", "execute returns no responses", _LIST, place(execute))


def _wrong_elements(file: str, execute: Function) -> Iterator[Finding]:
    """TR309, TR312: each list that execute returns is empty, or has elements that are no responses.

    Newer servers accept None for a response.
    """
    lists = [node.value for node in returns(execute)]
    contents = [node.elts if isinstance(node, ast.List) else [node.elt] for node in lists
            if isinstance(node, ast.List | ast.ListComp)]  # fmt: skip
    if not contents or len(contents) != len(lists):
        return
    elements = [element for content in contents for element in content]
    where = place(returns(execute)[0])
    if not elements:
        yield error(file, "TR312", "execute returns an empty list", _LIST, where)
    elif all(contents) and all(isinstance(e, ast.List) or _is_tensor(e) or _is_plain(e) for e in elements):
        what = "tensors" if _is_tensor(elements[0]) else "other values"
        message = f"execute returns a list of {what}, but the backend needs InferenceResponses"
        yield error(file, "TR309", message, "put each response into an InferenceResponse", where)


def _too_few_responses(file: str, execute: Function) -> Iterator[Finding]:
    """TR312: execute returns fewer responses than requests, which fails each batch with more than one request."""
    requests = _arguments(execute)[0]
    in_loops: set[int] = set()
    for loop in (node for node in inside(execute) if isinstance(node, ast.For | ast.While)):
        in_loops |= {id(node) for statement in loop.body for node in ast.walk(statement)}
        if not isinstance(loop, ast.For) or not _uses(loop.iter, {requests}):
            continue
        if isinstance(loop.iter, ast.Subscript) and isinstance(loop.iter.slice, ast.Slice) and loop.iter.slice.upper:
            used = [node for node in inside(execute) if isinstance(node, ast.Name) and node.id == requests]
            if len(used) == 1:
                message = (
                    f"execute looks only at {ast.unparse(loop.iter)}: the other requests of a batch get no response"
                )
                yield warning(file, "TR312", message, f"loop over {requests}", place(loop.iter))
        last = loop.body[-1]
        if isinstance(last, ast.Return) and last.value is not None and not _is_none(last.value):
            yield warning(
                file,
                "TR312",
                "execute returns inside the loop over the requests: only the first request of a batch gets a response",
                "move the return after the loop",
                place(last),
            )
    for node in returns(execute):
        match node.value:
            case ast.List(elts=[element]) if _is_response(element) and id(node) not in in_loops:
                message = "execute returns one response, but a batch has several requests"
                yield warning(file, "TR312", message, _LIST, place(node))


def _gives_requests_away(execute: Function) -> bool:
    """Whether another function may get the requests, and send the responses: any but those of pb_utils."""
    names = set(_arguments(execute))
    for node in inside(execute):
        if isinstance(node, ast.For | ast.comprehension):
            names |= {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
    for node in inside(execute):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in _HARMLESS:
                continue
            case ast.Call(func=ast.Attribute(value=ast.Name(id="pb_utils"))):
                continue
            case ast.Call(args=args, keywords=keywords):
                values: list[ast.AST] = [*args, *(keyword.value for keyword in keywords)]
            case ast.Assign(value=value) | ast.AugAssign(value=value) | ast.NamedExpr(value=value):
                values = [value]
            case ast.AnnAssign() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
                values = [node]
            case _:
                continue
        if any(_uses(value, names) for value in values):
            return True
    return False


def _uses(node: ast.AST, names: set[str]) -> bool:
    """Whether a value may contain what the variables contain. What pb_utils returns doesn't."""
    todo = [node]
    while todo:
        match todo.pop():
            case ast.Name(id=name) if name in names:
                return True
            case ast.Call(func=ast.Attribute(value=ast.Name(id="pb_utils"))):
                continue
            case part:
                todo.extend(ast.iter_child_nodes(part))
    return False


def _is_list(node: ast.expr, execute: Function) -> bool:
    """Whether a returned value is certainly a list."""
    match node:
        case ast.List() | ast.ListComp() | ast.Call(func=ast.Name(id="list" | "sorted")):
            return True
    return isinstance(node, ast.Name) and node.id == _arguments(execute)[0]


def _no_list(node: ast.expr) -> str:
    """Returns what a returned value is; an empty string if it may be a list or None."""
    match node:
        case ast.Tuple():
            return "a tuple"
        case ast.Dict() | ast.DictComp():
            return "a dict"
        case ast.GeneratorExp():
            return "a generator"
        case ast.Call(func=ast.Name(id="tuple" | "dict" | "set" | "map" | "filter" | "zip" as name)):
            return f"a {name}"
        case ast.Call() if _is_response(node):
            return "a single InferenceResponse"
    return "a value that is not a list" if _is_plain(node) else ""


def _is_plain(node: ast.expr) -> bool:
    """Whether a value is a constant, a tuple, a dict, a set or text."""
    return isinstance(node, ast.Constant | ast.Tuple | ast.Dict | ast.Set | ast.JoinedStr) and not _is_none(node)


def _is_tensor(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="pb_utils"), attr="Tensor")):
            return True
    return False


def _is_response(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="InferenceResponse") | ast.Name(id="InferenceResponse")):
            return True
    return False


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _arguments(execute: Function) -> list[str]:
    """Returns the names of the arguments after self, first that of the requests."""
    return [argument.arg for argument in (*execute.args.posonlyargs, *execute.args.args)][1:] or ["requests"]


def _mentions(tree: ast.Module, name: str) -> bool:
    return any(getattr(node, "attr", getattr(node, "value", None)) == name for node in ast.walk(tree))


CHECKS: Checks = (("model.py: responses", each_model(answers)),)
