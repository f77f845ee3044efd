"""What kind of value an expression of model.py certainly has: for checks of arguments and of numpy's types."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator

from triton_repository_check.rules.source import UTILS, Function, classes, inside

TEXT, NUMBER, LIST, EXCEPTION, REQUESTS = "a string", "a number", "a list", "an exception", "the list of all requests"
TENSOR, RESPONSE, ERROR, REQUEST = "a Tensor", "an InferenceResponse", "a TritonError", "an InferenceRequest"
ARRAY = "an array"
_MADE = {"Tensor": TENSOR, "Tensor.from_dlpack": TENSOR, "InferenceResponse": RESPONSE, "TritonError": ERROR,
         "InferenceRequest": REQUEST, "TritonModelException": EXCEPTION}  # fmt: skip
_DEPTH = 6
_LONGEST = 3
"""Maximum number of attributes of a name in pb_utils: TritonError.INVALID_ARG has two after the module."""
_SAME_TYPE = frozenset({"reshape", "copy", "flatten", "ravel", "transpose", "squeeze", "repeat"})
"""Methods and functions that keep the type of their array."""
_FLOATS = frozenset({"zeros", "ones", "empty", "eye", "identity", "linspace"})
_INDEXES = frozenset({"argmax", "argmin", "argsort"})
_DTYPE_AT = {"array": 1, "asarray": 1, "ascontiguousarray": 1, "zeros": 1, "ones": 1, "empty": 1, "identity": 1,
             "full": 2, "eye": 3}  # fmt: skip
"""The position of the argument dtype."""
_BUILTINS = {
    "float": "float64", "int": "int64", "bool": "bool", "str": "str", "bytes": "bytes", "object": "object",
}  # fmt: skip
_NAMES = _BUILTINS | {
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
        nodes = list(ast.walk(tree))
        self.bound = Counter(name for node in nodes for name, _ in _bindings(node))
        self.bound.update(node.arg for node in nodes if isinstance(node, ast.arg))
        self.executes = [item for node in classes(tree) for item in node.body if getattr(item, "name", "") == "execute"]
        for node in nodes:
            for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
                if isinstance(node, ast.ImportFrom):
                    if node.module == UTILS:
                        self.direct[alias.asname or alias.name] = alias.name
                elif alias.name == UTILS:
                    self.modules.add(alias.asname or alias.name)
                elif alias.name == "numpy":
                    self.numpy.add(alias.asname or alias.name)
        for node in nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self.bound[name] == 1:
                    self.direct |= {name: kind} if (kind := self.of(value)) in _MADE else {}

    def of(self, node: ast.expr) -> str:
        """Returns what `node` names in pb_utils, e.g. Tensor or Logger.log_info; an empty string if nothing."""
        attributes: list[str] = []
        while isinstance(node, ast.Attribute) and len(attributes) < _LONGEST:
            attributes.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or (node.id in self.modules and not attributes):
            return ""
        start = [] if node.id in self.modules else [self.direct.get(node.id, "")]
        return ".".join([*start, *attributes]) if start != [""] else ""

    def is_builtin(self, name: str) -> bool:
        """Whether `name` is Python's own: the file doesn't bind it."""
        return name in dir(builtins) and not self.bound[name]

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
        self._bindings: dict[str, list[ast.expr | str | None]] = {}
        self._kinds: dict[tuple[str, int, str], str] = {}
        arguments = [*function.args.posonlyargs, *function.args.args]
        for argument in (*arguments, *function.args.kwonlyargs):
            self._bindings[argument.arg] = [None]
        if any(function is execute for execute in names.executes) and len(arguments) > 1:
            self._bindings[arguments[1].arg] = [REQUESTS]
        for node in ast.walk(function):
            if isinstance(node, ast.Global | ast.Nonlocal):
                self._bindings |= {name: [None] for name in node.names}
        for node in inside(function):
            for name, value in _bindings(node):
                self._bindings.setdefault(name, []).append(value)

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
                return self._of(name, depth - 1, "kind")
            case ast.BinOp(left=left, op=ast.Add() | ast.Mod()) if depth:
                return TEXT if self.kind(left, depth - 1) == TEXT else self._array(node, depth)
            case ast.Call(func=ast.Name(id="str" | "repr")):
                return TEXT
            case ast.Call(func=ast.Name(id="list" | "sorted")):
                return LIST
            case ast.Call(func=ast.Name(id=name)) if name.endswith(("Error", "Exception")) and (
                self.names.is_builtin(name)
            ):
                return EXCEPTION
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="format" | "join")):
                return TEXT
            case ast.Call(func=function) if kind := _MADE.get(self.names.of(function)):
                return kind
        return self._array(node, depth)

    def _of(self, name: str, depth: int, what: str) -> str:
        """Returns the kind, dtype or element of a variable's value if it is the same in each binding. Finds it once."""
        key = (name, depth, what)
        if key not in self._kinds:
            values = {self._bound(value, depth, what) for value in self._bindings.get(name, ())}
            self._kinds[key] = values.pop() if len(values) == 1 else ""
        return self._kinds[key]

    def _bound(self, value: ast.expr | str | None, depth: int, what: str) -> str:
        if not isinstance(value, ast.expr):
            return (value or "") if what == "kind" else ""
        if what == "kind":
            return self.kind(value, depth)
        if what == "dtype":
            return self.dtype(value, depth)
        return "" if isinstance(value, ast.List) else self._element(value, depth)  # a list may get others later

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
                return self._of(name, depth - 1, "dtype")
            case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
                return _joined(self._side(left, depth), self._side(right, depth), isinstance(node.op, ast.Div))
            case ast.Call(func=ast.Attribute(attr="astype"), args=[argument, *_]):
                return self._named(argument)
            case ast.Call(func=function, args=arguments, keywords=keywords):
                data_type = next((k.value for k in keywords if k.arg == "dtype"), None)
                keys = {k.arg for k in keywords}
                if keys & {None, "out", "retstep"} or any(isinstance(a, ast.Starred) for a in arguments):
                    return ""
                if name := self.names.of_numpy(function):
                    return self._result(name, arguments, data_type, keys, depth)
                if isinstance(function, ast.Attribute) and function.attr in _SAME_TYPE:
                    return self.dtype(function.value, depth - 1)
        return ""

    def _side(self, node: ast.expr, depth: int) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return "fraction" if isinstance(node.value, float) else "whole"
        return self.dtype(node, depth - 1)

    def _result(
        self, name: str, arguments: list[ast.expr], data_type: ast.expr | None, keys: set[str | None], depth: int
    ) -> str:
        """Returns the type of the array that a function of numpy makes. The type may be its second argument."""
        if data_type is None and len(arguments) > (at := _DTYPE_AT.get(name, 4)):
            data_type = arguments[at]
        if data_type is not None:
            return self._named(data_type) if name in _DTYPE_AT or name == "arange" else ""
        if name in _FLOATS or name in ("random.rand", "random.randn", "random.random", "random.uniform"):
            return "float64"
        if name in _INDEXES and "axis" in keys:
            return "int64"
        if name in ("array", "asarray") and arguments:
            return self.dtype(arguments[0], depth - 1) or self._element(arguments[0])
        if name == "full" and len(arguments) > 1:
            return self._element(arguments[1])
        if name in _SAME_TYPE | {"expand_dims", "ascontiguousarray"} and arguments:
            return self.dtype(arguments[0], depth - 1)
        return ""

    def _element(self, node: ast.expr, depth: int = _DEPTH) -> str:
        """Returns numpy's type of a list's elements, or of one value."""
        match node:
            case _ if not depth:
                return ""
            case ast.Constant(value=bool()) | ast.UnaryOp(op=ast.Not()):
                return "bool"
            case ast.Constant(value=int(number)):
                return "int64" if number < 2**63 else ""
            case ast.Call(func=ast.Name(id="len" | "int")):
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
                return self._of(name, depth - 1, "element")
            case ast.List(elts=elements) | ast.Tuple(elts=elements) if elements:
                types = {self._element(element, depth - 1) for element in elements}
                return "float64" if types == {"int64", "float64"} else types.pop() if len(types) == 1 else ""
        return ""

    def _named(self, node: ast.expr) -> str:
        """Returns the type that `dtype=` or astype names."""
        match node:
            case ast.Name(id=name):
                return _BUILTINS.get(name, "") if self.names.is_builtin(name) else ""
            case ast.Constant(value=str(name)):
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
