"""What kind of value an expression of model.py certainly has: for checks of arguments and of numpy's types."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from triton_repository_check.rules.source import UTILS, Function, inside

TEXT, NUMBER, LIST, EXCEPTION, REQUESTS = "a string", "a number", "a list", "an exception", "the list of all requests"
TENSOR, RESPONSE, ERROR, REQUEST = "a Tensor", "an InferenceResponse", "a TritonError", "an InferenceRequest"
ARRAY = "an array"
_MADE = {"Tensor": TENSOR, "Tensor.from_dlpack": TENSOR, "InferenceResponse": RESPONSE, "TritonError": ERROR,
         "InferenceRequest": REQUEST, "TritonModelException": EXCEPTION}  # fmt: skip
_DEPTH = 6
_SAME_TYPE = frozenset({"reshape", "copy", "flatten", "ravel", "transpose", "squeeze", "repeat", "clip", "round"})
"""Methods and functions that keep the type of their array."""
_FLOATS = frozenset({"zeros", "ones", "empty", "eye", "identity", "linspace"})
_INDEXES = frozenset({"argmax", "argmin", "argsort"})
_NAMES = {
    "float": "float64", "int": "int64", "bool": "bool", "str": "str", "bytes": "bytes", "object": "object",
    "str_": "str", "unicode_": "str", "bytes_": "bytes", "object_": "object", "bool_": "bool", "double": "float64",
    "single": "float32", "half": "float16", "string_": "bytes", "U": "str", "S": "bytes", "O": "object",
    "f": "float32", "d": "float64", "f4": "float32", "f8": "float64", "i4": "int32", "i8": "int64",
}  # fmt: skip
_PLAIN = frozenset(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)) | {
    "float16", "float32", "float64"}  # fmt: skip


class Names:
    """The names under which a file uses pb_utils and numpy."""

    def __init__(self, tree: ast.Module) -> None:
        self.modules, self.numpy = {"pb_utils"}, set[str]()
        self.direct: dict[str, str] = {}
        for node in ast.walk(tree):
            for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
                if isinstance(node, ast.ImportFrom):
                    if node.module == UTILS:
                        self.direct[alias.asname or alias.name] = alias.name
                elif alias.name == UTILS:
                    self.modules.add(alias.asname or alias.name)
                elif alias.name == "numpy":
                    self.numpy.add(alias.asname or alias.name)

    def of(self, node: ast.expr) -> str:
        """Returns what `node` names in pb_utils, e.g. Tensor or Logger.log_info; an empty string if nothing."""
        match node:
            case ast.Name(id=name):
                return self.direct.get(name, "")
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in self.modules:
                return name
            case ast.Attribute(value=inner, attr=name) if owner := self.of(inner):
                return f"{owner}.{name}"
        return ""

    def of_numpy(self, node: ast.expr) -> str:
        """Returns the name of numpy that `node` is, e.g. zeros or random.rand; an empty string for others."""
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in self.numpy:
                return name
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id=owner), attr="random"), attr=name):
                return f"random.{name}" if owner in self.numpy else ""
        return ""


class Scope:
    """The values of the names in one function, as far as the source shows them."""

    def __init__(self, function: Function, names: Names) -> None:
        self.names = names
        self._known: dict[str, list[ast.expr | str | None]] = {}
        arguments = [*function.args.posonlyargs, *function.args.args]
        for argument in (*arguments, *function.args.kwonlyargs):
            self._known[argument.arg] = [None]
        if function.name == "execute" and len(arguments) > 1:
            self._known[arguments[1].arg] = [REQUESTS]
        for node in inside(function):
            for name, value in _bindings(node):
                self._known.setdefault(name, []).append(value)

    def kind(self, node: ast.expr, depth: int = _DEPTH) -> str:
        """Returns the kind of the value of `node`; an empty string if it is unknown."""
        match node:
            case ast.Constant(value=str()) | ast.JoinedStr():
                return TEXT
            case ast.Constant(value=bool() | int() | float()):
                return NUMBER
            case ast.List() | ast.ListComp():
                return LIST
            case ast.Name(id=name) if depth:
                kinds = {value if isinstance(value, str) else self.kind(value, depth - 1) if value else ""
                         for value in self._known.get(name, ())}  # fmt: skip
                return kinds.pop() if len(kinds) == 1 else ""
            case ast.BinOp(left=left, op=ast.Add() | ast.Mod()):
                return TEXT if self.kind(left, depth - 1 if depth else 0) == TEXT else self._array(node, depth)
            case ast.Call(func=ast.Name(id="str" | "repr")):
                return TEXT
            case ast.Call(func=ast.Name(id="list" | "sorted")):
                return LIST
            case ast.Call(func=ast.Name(id=name)) if name.endswith(("Error", "Exception")) and not self.names.of(
                node.func
            ):
                return EXCEPTION
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="format" | "join")):
                return TEXT
            case ast.Call(func=function) if kind := _MADE.get(self.names.of(function)):
                return kind
        return self._array(node, depth)

    def _array(self, node: ast.expr, depth: int) -> str:
        match node:
            case ast.Call(func=ast.Attribute(attr="as_numpy")):
                return ARRAY
        return ARRAY if self.dtype(node, depth) else ""

    def dtype(self, node: ast.expr, depth: int = _DEPTH) -> str:
        """Returns numpy's type of an array, e.g. float64; an empty string if it is unknown or not an array."""
        if not depth:
            return ""
        match node:
            case ast.Name(id=name):
                values = self._known.get(name, ())
                types = {self.dtype(value, depth - 1) if isinstance(value, ast.expr) else "" for value in values}
                return types.pop() if len(types) == 1 else ""
            case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
                return _joined(self._side(left, depth), self._side(right, depth), isinstance(node.op, ast.Div))
            case ast.Call(func=ast.Attribute(attr="astype"), args=[argument, *_]):
                return self._named(argument)
            case ast.Call(func=function, args=arguments, keywords=keywords):
                data_type = next((k.value for k in keywords if k.arg == "dtype"), None)
                if any(k.arg is None for k in keywords) or any(isinstance(a, ast.Starred) for a in arguments):
                    return ""
                if name := self.names.of_numpy(function):
                    return self._made(name, arguments, data_type, {k.arg for k in keywords}, depth)
                if isinstance(function, ast.Attribute) and function.attr in _SAME_TYPE:
                    return self.dtype(function.value, depth - 1)
        return ""

    def _side(self, node: ast.expr, depth: int) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return "fraction" if isinstance(node.value, float) else "whole"
        return self.dtype(node, depth - 1)

    def _made(
        self, name: str, arguments: list[ast.expr], data_type: ast.expr | None, keys: set[str | None], depth: int
    ) -> str:
        """Returns the type of the array that a function of numpy makes. The type may be its second argument."""
        places = {"array": 1, "asarray": 1, "zeros": 1, "ones": 1, "empty": 1, "full": 2}
        if data_type is None and name in places and len(arguments) > places[name]:
            data_type = arguments[places[name]]
        if data_type is not None:
            return self._named(data_type) if name in places or name in ("arange", "linspace") else ""
        if name in _FLOATS or name in ("random.rand", "random.randn", "random.random", "random.uniform"):
            return "float64"
        if name in _INDEXES and "axis" in keys:
            return "int64"
        if name in ("array", "asarray") and arguments:
            return self.dtype(arguments[0], depth - 1) or self._element(arguments[0])
        if name == "full" and len(arguments) > 1:
            return self._element(arguments[1])
        if name in (_SAME_TYPE | {"expand_dims", "ascontiguousarray"}) and arguments:
            return self.dtype(arguments[0], depth - 1)
        return ""

    def _element(self, node: ast.expr, depth: int = _DEPTH) -> str:
        """Returns numpy's type of a list's elements, or of one value."""
        match node:
            case _ if not depth:
                return ""
            case ast.Constant(value=bool()):
                return "bool"
            case ast.Constant(value=int()) | ast.Call(func=ast.Name(id="len" | "int")):
                return "int64"
            case ast.Constant(value=float()) | ast.Call(func=ast.Name(id="float")):
                return "float64"
            case ast.Constant(value=str()) | ast.JoinedStr() | ast.Call(func=ast.Name(id="str")):
                return "str"
            case ast.Constant(value=bytes()):
                return "bytes"
            case ast.UnaryOp(operand=inner) | ast.ListComp(elt=inner):
                return self._element(inner, depth - 1)
            case ast.BinOp(left=ast.List() as inner, op=ast.Mult()):
                return self._element(inner, depth - 1)
            case ast.Name(id=name):
                values = self._known.get(name, ())
                types = {self._element(v, depth - 1) if isinstance(v, ast.expr) else "" for v in values}
                return types.pop() if len(types) == 1 else ""
            case ast.List(elts=elements) | ast.Tuple(elts=elements) if elements:
                types = {self._element(element, depth - 1) for element in elements}
                return "float64" if types == {"int64", "float64"} else types.pop() if len(types) == 1 else ""
        return ""

    def _named(self, node: ast.expr) -> str:
        """Returns the type that `dtype=` or astype names."""
        match node:
            case ast.Constant(value=str(name)) | ast.Name(id=name):
                pass
            case ast.Attribute() if self.names.of_numpy(node):
                name = node.attr
            case _:
                return ""
        return _NAMES.get(name, name if name in _PLAIN else "")


def _joined(left: str, right: str, divides: bool) -> str:
    """Returns the type of an arithmetic operation of an array with a number, or with another array."""
    for array, other in ((left, right), (right, left)):
        if array.startswith("float") and other in ("whole", "fraction", array):
            return array
        if array == "int64" and other in ("whole", "int64"):
            return "float64" if divides else "int64"
        if array == "int64" and other == "fraction":
            return "float64"
    return ""


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr | str | None]]:
    """Returns the names that a statement binds, with their values; None for an unknown one."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.ExceptHandler(name=str(name)):
            yield name, EXCEPTION
        case ast.Assign(targets=targets):
            yield from _unknown(*targets)
        case ast.AugAssign(target=target) | ast.For(target=target) | ast.AsyncFor(target=target):
            yield from _unknown(target)
        case ast.NamedExpr(target=target) | ast.comprehension(target=target):
            yield from _unknown(target)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            yield from _unknown(*(item.optional_vars for item in items if item.optional_vars))
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from ((alias.asname or alias.name, None) for alias in names)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, None
        case ast.Global(names=bound) | ast.Nonlocal(names=bound):
            yield from ((name, None) for name in bound)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name, None


def _unknown(*targets: ast.expr) -> Iterator[tuple[str, None]]:
    for target in targets:
        yield from ((node.id, None) for node in ast.walk(target) if isinstance(node, ast.Name))
