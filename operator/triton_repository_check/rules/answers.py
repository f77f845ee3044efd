"""Checks of what execute of model.py returns, as far as the source shows it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from enum import Enum

from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.rules.base import Checks, each_model, error, note, warning
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

_SENDER = "get_response_sender"
_HARMLESS = frozenset({"len", "enumerate", "zip", "range", "print", "list", "sorted", "reversed", "isinstance", "id",
                       "repr", "str", "type", "bool", "iter", "next", "hasattr", "getattr"})  # fmt: skip
"""Builtins that can't send a response to a request in their arguments."""
_UTILS = "pb_utils"
_ROUNDS = 8
"""The longest chain of assignments that is followed."""
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
            values = _Values({item.name: item for item in node.body if isinstance(item, Function)})
            execute = values.methods.get("execute")
            if execute is None or execute.decorator_list:
                continue
            passes = _passes_requests_on(execute, values.methods)
            sends = (passes and elsewhere) or bool(node.bases) or _mentions(tree, _SENDER)
            if model.config.model_transaction_policy.decoupled:
                yield from _decoupled(file, execute, values, sends, passes, tree)
            else:
                yield from _returned(file, execute, values, sends, passes)
                if any(model.config.HasField(name) for name in _SERVER_COLLECTS):
                    yield from _too_few_responses(file, execute)


def _decoupled(
    file: str, execute: Function, values: _Values, sends: bool, passes: bool, tree: ast.Module
) -> Iterator[Finding]:
    nodes = [node for node in returns(execute) if values.of(node.value, execute) in (Value.LIST, Value.OTHER)]
    always = len(nodes) == len(returns(execute)) and not _falls_through(execute)
    if not nodes or (not always and _mentions(tree, "decoupled")):
        return  # the model supports both modes and reads its configuration
    # If the model sent all responses and the final flag, the backend only logs an error.
    empty = all(_is_empty(node.value, execute) for node in nodes)
    remedy = "return None" if sends else "send responses with request.get_response_sender()"
    yield (error if always and not sends and not passes else note if empty else warning)(
        file,
        "TR309",
        "execute of a decoupled model must return None, but it returns a value",
        f"{remedy}, or remove model_transaction_policy from config.pbtxt",
        place(nodes[0]),
    )


def _is_empty(node: ast.expr | None, execute: Function) -> bool:
    """Whether a returned value is an empty list, also one in a variable that is only returned."""
    match node:
        case ast.List(elts=[]) | ast.Call(func=ast.Name(id="list"), args=[], keywords=[]):
            return True
        case ast.Name(id=name):
            bound = [n.value for n in inside(execute) if isinstance(n, ast.Assign) and _names(n.targets) == {name}]
            used = [n for n in inside(execute) if isinstance(n, ast.Name) and n.id == name]
            returned = [n for n in returns(execute) if isinstance(n.value, ast.Name) and n.value.id == name]
            lists = all(isinstance(value, ast.List) and not value.elts for value in bound)
            return lists and len(used) == len(bound) + len(returned)
    return False


def _names(targets: list[ast.expr]) -> set[str]:
    """Returns the names in targets of assignments and loops."""
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _returned(file: str, execute: Function, results: _Values, sends: bool, passes: bool) -> Iterator[Finding]:
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
    values = [(node, results.of(node.value, execute)) for node in returns(execute)]
    others = [node for node, value in values if value is Value.OTHER]
    if not sends and not passes:
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
    yield (warning if passes else error)(
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
    loops = [node for node in inside(execute) if isinstance(node, ast.For | ast.While)]
    in_loops = {id(node) for loop in loops for statement in loop.body for node in ast.walk(statement)}
    for node in returns(execute):
        if isinstance(node.value, ast.List) and len(node.value.elts) == 1 and _is_response(node.value.elts[0]):
            if id(node) in in_loops:
                continue
            yield warning(
                file,
                "TR312",
                "execute returns one response, but a batch has several requests",
                "return a list with one InferenceResponse for each request",
                place(node),
            )


class _Values:
    """The kinds of the values of expressions in the methods of a class, each found once."""

    def __init__(self, methods: dict[str, Function]) -> None:
        self.methods = methods
        self._bound = {name: _bound(method) for name, method in methods.items()}
        self._values: dict[tuple[str, str, int], Value] = {}

    def of(self, node: ast.expr | None, method: Function, depth: int = 3) -> Value:
        """Returns the kind of `node`'s value, an expression in `method`."""
        match node:
            case None:
                return Value.NONE
            case ast.Constant(value=constant):
                return Value.NONE if constant is None else Value.OTHER
            case ast.List() | ast.ListComp() | ast.Call(func=ast.Name(id="list" | "sorted")):
                return Value.LIST
            case ast.Tuple() | ast.Dict() | ast.Set() | ast.DictComp() | ast.SetComp() | ast.GeneratorExp():
                return Value.OTHER
            case ast.JoinedStr() | ast.Compare() | ast.Lambda():
                return Value.OTHER
            case ast.Call(func=ast.Name(id="tuple" | "dict" | "set" | "str" | "map" | "filter" | "zip")):
                return Value.OTHER
            case ast.Call() if _is_response(node):
                return Value.OTHER
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) if name in self.methods and depth:
                return self._once(name, "", depth - 1)
            case ast.Name(id=name) if name == _argument(method) and method.name == "execute":
                return Value.LIST
            case ast.Name(id=name) if depth:
                return self._once(method.name, name, depth - 1)
        return Value.UNKNOWN

    def _once(self, method: str, variable: str, depth: int) -> Value:
        """Returns the kind of a variable's value, or of the method's result if `variable` is empty."""
        key = (method, variable, depth)
        if key not in self._values:
            self._values[key] = self._joined(self.methods[method], variable, depth)
        return self._values[key]

    def _joined(self, method: Function, variable: str, depth: int) -> Value:
        expressions: list[ast.expr | None] = [*self._bound[method.name].get(variable, ())]
        if not variable and not _is_plain(method):
            return Value.UNKNOWN
        if not variable:
            expressions = [node.value for node in returns(method)] or [None]
        values = {self.of(expression, method, depth) for expression in expressions}
        return values.pop() if len(values) == 1 else Value.UNKNOWN


def _is_plain(method: Function) -> bool:
    """Whether a call of the method certainly returns what its return statements say."""
    generates = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in inside(method))
    return isinstance(method, ast.FunctionDef) and not method.decorator_list and not generates


def _bound(method: Function) -> dict[str, list[ast.expr]]:
    """Returns the expressions of the variables that the method only binds by plain assignments."""
    bindings = Counter(n.id for n in inside(method) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))
    bindings.update(argument.arg for argument in (*method.args.args, *method.args.kwonlyargs))
    expressions: dict[str, list[ast.expr]] = {}
    for node in inside(method):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                expressions.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                expressions.setdefault(name, []).append(value)
    return {name: values for name, values in expressions.items() if len(values) == bindings[name]}


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


def _passes_requests_on(execute: Function, methods: dict[str, Function]) -> bool:
    """Whether execute, or a method that it calls, gives a request to a function of another file or to an object."""
    ahead, seen = [execute], {execute.name}
    while ahead:
        method = ahead.pop()
        variables = _of_requests(method)
        for node in inside(method):
            match node:
                case ast.Call(func=function, args=arguments, keywords=keywords):
                    values = [*arguments, *(keyword.value for keyword in keywords)]
                    if not any(_uses(argument, variables) for argument in values):
                        continue
                    name = function.attr if isinstance(function, ast.Attribute) else ""
                    if not _is_method(function, methods):
                        return True
                    if name in methods and name not in seen:
                        seen.add(name)
                        ahead.append(methods[name])
                case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_], value=value) if _uses(
                    value, variables
                ):
                    return True
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() if _uses(node, variables):
                    return True  # another thread may call it
                case ast.AugAssign(target=ast.Attribute() | ast.Subscript(), value=value) if _uses(value, variables):
                    return True
    return False


def _of_requests(method: Function) -> set[str]:
    """Returns the variables that may have a request, or several: the arguments, and what is made of them."""
    variables = {argument.arg for argument in method.args.args[1:]} or {_argument(method)}
    bindings: list[tuple[set[str], ast.expr]] = []
    for node in inside(method):
        match node:
            case ast.Assign(targets=targets, value=value):
                bindings.append((_names(targets), value))
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                bindings.append((_names([target]), value))
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                bindings.append((_names([target]), value))
    for _ in range(_ROUNDS):
        more = {name for names, value in bindings if _uses(value, variables) for name in names} - variables
        if not more:
            break
        variables |= more
    return variables


def _uses(node: ast.expr | ast.stmt, variables: set[str]) -> bool:
    """Whether a value may contain what the variables contain. What pb_utils returns doesn't."""
    todo: list[ast.AST] = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, ast.Name) and part.id in variables:
            return True
        match part:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="pb_utils"))):
                continue
        todo.extend(ast.iter_child_nodes(part))
    return False


def _is_method(function: ast.expr, methods: dict[str, Function]) -> bool:
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


def _constant_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _mentions(tree: ast.Module, name: str) -> bool:
    return any(getattr(node, "attr", getattr(node, "value", None)) == name for node in ast.walk(tree))


CHECKS: Checks = (("model.py: responses", each_model(answers)),)
