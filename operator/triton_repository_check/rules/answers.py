"""Checks of what execute of model.py returns, as far as the source shows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum

from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.rules.base import error, note, warning
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

_SENDER = "get_response_sender"
_HARMLESS = frozenset({"len", "enumerate", "zip", "range", "print", "list", "sorted", "reversed", "isinstance", "id",
                       "repr", "str", "type", "bool", "iter", "next", "hasattr", "getattr"})  # fmt: skip
"""Builtins that can't send a response to a request in their arguments."""
_UTILS = "pb_utils"
_SERVER_COLLECTS = ("dynamic_batching", "sequence_batching")
"""Schedulers that pass several requests to one execute. Without them, execute gets one request at a time."""


class Value(Enum):
    """The kind of an expression's value."""

    NONE = "None"
    LIST = "a list"
    OTHER = "something else"
    """Neither a list nor None, e.g. a tuple."""
    UNKNOWN = "unknown"


def answers(_: Repository, model: Model) -> Iterator[Finding]:
    """TR309, TR312: execute must return a list with one response for each request.

    In a decoupled model, it must send the responses and return None.
    """
    if model.config is None:
        return
    for file, tree in trees(model):
        if _mentions(tree, "set_model_transaction_policy"):
            continue  # model.py sets decoupled at run time
        elsewhere = imports_local_modules(model, file, tree)
        for node in classes(tree):
            methods = {item.name: item for item in node.body if isinstance(item, Function)}
            execute = methods.get("execute")
            if execute is None or execute.decorator_list:
                continue
            if model.config.model_transaction_policy.decoupled:
                yield from _decoupled(file, execute, methods, _mentions(tree, _SENDER) or elsewhere, tree)
            else:
                passes = elsewhere and _passes_request_on(execute, methods)
                sends = passes or bool(node.bases) or _mentions(tree, _SENDER)
                yield from _returned(file, execute, methods, sends)
                if any(model.config.HasField(name) for name in _SERVER_COLLECTS):
                    yield from _too_few_responses(file, execute)


def _decoupled(
    file: str, execute: Function, methods: dict[str, Function], sends: bool, tree: ast.Module
) -> Iterator[Finding]:
    nodes = [node for node in returns(execute) if _value(node.value, execute, methods) in (Value.LIST, Value.OTHER)]
    always = len(nodes) == len(returns(execute)) and not _falls_through(execute)
    if not nodes or (not always and _mentions(tree, "decoupled")):
        return  # the model supports both modes and reads its configuration
    # If the model sent all responses and the final flag, the backend only logs an error.
    empty = all(isinstance(node.value, ast.List) and not node.value.elts for node in nodes)
    yield (error if always and not sends else note if empty else warning)(
        file,
        "TR309",
        "execute of a decoupled model must return None, but it returns a value",
        "send responses with request.get_response_sender(), or remove model_transaction_policy from config.pbtxt",
        place(nodes[0]),
    )


def _returned(file: str, execute: Function, methods: dict[str, Function], sends: bool) -> Iterator[Finding]:
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in inside(execute)):
        if any(node.value is not None for node in returns(execute)):
            return  # asyncio up to Python 3.11 treats it as a coroutine
        yield error(
            file,
            "TR309",
            "execute is a generator, but the backend needs a list",
            "collect the responses in a list and return it",
            place(execute),
        )
        return
    values = [(node, _value(node.value, execute, methods)) for node in returns(execute)]
    others = [node for node, value in values if value is Value.OTHER]
    if not sends:
        yield from _wrong_elements(file, execute)
    if others:
        yield (error if len(others) == len(values) else warning)(
            file,
            "TR309",
            f"execute returns {_kind(others[0].value)}, but the backend needs a list",
            "return a list with one InferenceResponse for each request",
            place(others[0]),
        )
    if sends or ends_in_raise(execute) or any(value is not Value.NONE for _, value in values):
        return
    # A function of another module may send the responses.
    level = warning if _passes_request_on(execute, methods) else error
    yield level(
        file,
        "TR309",
        "execute returns no responses",
        "return a list with one InferenceResponse for each request",
        place(execute),
    )


def _wrong_elements(file: str, execute: Function) -> Iterator[Finding]:
    """TR309, TR312: each list that execute returns is empty, or has elements that are no responses."""
    lists = [node.value for node in returns(execute)]
    contents = [node.elts if isinstance(node, ast.List) else [node.elt] for node in lists
            if isinstance(node, ast.List | ast.ListComp)]  # fmt: skip
    if not contents or len(contents) != len(lists):
        return
    if not any(contents):
        message, remedy = "execute returns an empty list", "return a list with one InferenceResponse for each request"
        yield error(file, "TR312", message, remedy, place(returns(execute)[0]))
    elif all(elements and all(map(_is_no_response, elements)) for elements in contents):
        message = f"execute returns a list of {_kind(contents[0][0])}, but the backend needs InferenceResponses"
        yield error(file, "TR309", message, "put each response into an InferenceResponse", place(returns(execute)[0]))


def _is_no_response(node: ast.expr) -> bool:
    """Whether a list's element is certainly not a response. Newer servers accept None."""
    match node:
        case ast.Constant(value=value):
            return value is not None
        case ast.List() | ast.Tuple() | ast.Dict() | ast.Set() | ast.JoinedStr():
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="pb_utils"), attr="Tensor")):
            return True
    return False


def _too_few_responses(file: str, execute: Function) -> Iterator[Finding]:
    """TR312: execute returns fewer responses than requests, which fails each batch with more than one request."""
    requests = _argument(execute)
    for loop in (node for node in inside(execute) if isinstance(node, ast.For)):
        if not any(isinstance(node, ast.Name) and node.id == requests for node in ast.walk(loop.iter)):
            continue
        last = loop.body[-1]
        if isinstance(last, ast.Return) and last.value is not None and not _constant_none(last.value):
            yield warning(
                file,
                "TR312",
                "execute returns inside the loop over the requests: only the first request of a batch gets a response",
                "move the return after the loop",
                place(last),
            )
    for node in returns(execute):
        if isinstance(node.value, ast.List) and len(node.value.elts) == 1 and _is_response(node.value.elts[0]):
            if _in_loop(execute, node):
                continue
            yield warning(
                file,
                "TR312",
                "execute returns one response, but a batch has several requests",
                "return a list with one InferenceResponse for each request",
                place(node),
            )


def _value(node: ast.expr | None, execute: Function, methods: dict[str, Function], depth: int = 3) -> Value:
    """Returns the kind of `node`'s value, an expression in `execute`."""
    match node:
        case None:
            return Value.NONE
        case ast.Constant(value=constant):
            return Value.NONE if constant is None else Value.OTHER
        case ast.List() | ast.ListComp():
            return Value.LIST
        case ast.Tuple() | ast.Dict() | ast.Set() | ast.DictComp() | ast.SetComp() | ast.GeneratorExp():
            return Value.OTHER
        case ast.JoinedStr() | ast.Compare() | ast.Lambda():
            return Value.OTHER
        case ast.Call(func=ast.Name(id="list" | "sorted")):
            return Value.LIST
        case ast.Call(func=ast.Name(id="tuple" | "dict" | "set" | "str" | "map" | "filter" | "zip")):
            return Value.OTHER
        case ast.Call() if _is_response(node):
            return Value.OTHER
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) if name in methods and depth:
            return _of_method(methods[name], methods, depth - 1)
        case ast.Name(id=name):
            return _of_name(name, execute, methods, depth)
    return Value.UNKNOWN


def _of_method(method: Function, methods: dict[str, Function], depth: int) -> Value:
    if method.decorator_list or any(isinstance(n, ast.Yield | ast.YieldFrom) for n in inside(method)):
        return Value.UNKNOWN
    if isinstance(method, ast.AsyncFunctionDef):
        return Value.UNKNOWN
    values = {_value(node.value, method, methods, depth) for node in returns(method)} or {Value.NONE}
    return values.pop() if len(values) == 1 else Value.UNKNOWN


def _of_name(name: str, execute: Function, methods: dict[str, Function], depth: int) -> Value:
    """Returns the kind of a local variable's value if it is the same in each binding."""
    if name == _argument(execute) and execute.name == "execute":
        return Value.LIST
    if not depth or name in {a.arg for a in (*execute.args.args, *execute.args.kwonlyargs)}:
        return Value.UNKNOWN
    bindings = [
        n for n in inside(execute) if isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)
    ]
    expressions: list[ast.expr] = []
    for node in inside(execute):
        match node:
            case ast.Assign(targets=[ast.Name(id=bound)], value=value) if bound == name:
                expressions.append(value)
            case ast.AnnAssign(target=ast.Name(id=bound), value=ast.expr() as value) if bound == name:
                expressions.append(value)
    if not expressions or len(expressions) != len(bindings):
        return Value.UNKNOWN
    values = {_value(value, execute, methods, depth - 1) for value in expressions}
    return values.pop() if len(values) == 1 else Value.UNKNOWN


def _kind(node: ast.expr | None) -> str:
    match node:
        case ast.Tuple():
            return "a tuple"
        case ast.Dict() | ast.DictComp():
            return "a dict"
        case ast.GeneratorExp():
            return "a generator"
        case ast.Call(func=ast.Attribute(attr="Tensor")):
            return "tensors"
        case ast.Call() if _is_response(node):
            return "a single InferenceResponse"
        case ast.Call(func=ast.Name(id=name)):
            return f"a {name}"
    return "a value that is not a list"


def _passes_request_on(execute: Function, methods: dict[str, Function]) -> bool:
    """Whether execute passes a request to a function that isn't in the file, or to a task."""
    variables = {_argument(execute)}
    for node in inside(execute):
        match node:
            case ast.For(target=ast.Name(id=name)) | ast.comprehension(target=ast.Name(id=name)):
                variables.add(name)
            case ast.For(target=ast.Tuple(elts=names)):
                variables |= {element.id for element in names if isinstance(element, ast.Name)}
    for node in inside(execute):
        if isinstance(node, ast.Call):
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            passes = any(isinstance(n, ast.Name) and n.id in variables for a in arguments for n in ast.walk(a))
            if passes and not _known(node.func, methods):
                return True
    return False


def _known(function: ast.expr, methods: dict[str, Function]) -> bool:
    match function:
        case ast.Name(id=name):
            return name in _HARMLESS
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name in methods
        case ast.Attribute(value=ast.Name(id=owner)):
            return owner == _UTILS
    return False


def _falls_through(method: Function) -> bool:
    """Whether the method may end without a return statement, and so return None."""
    return not isinstance(method.body[-1], ast.Return | ast.Raise)


def _argument(execute: Function) -> str:
    arguments = [*execute.args.posonlyargs, *execute.args.args]
    return arguments[1].arg if len(arguments) > 1 else "requests"


def _is_response(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="InferenceResponse") | ast.Name(id="InferenceResponse")):
            return True
    return False


def _in_loop(execute: Function, statement: ast.Return) -> bool:
    return any(statement in ast.walk(node) for node in inside(execute) if isinstance(node, ast.For | ast.While))


def _constant_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _mentions(tree: ast.Module, name: str) -> bool:
    return any(getattr(node, "attr", getattr(node, "value", None)) == name for node in ast.walk(tree))
