"""What kind of value an expression of model.py certainly has: for checks of arguments and of numpy's types."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator

from triton_repository_check.rules.source import UTILS, Function, bindings, classes, inside

TEXT, NUMBER, LIST, EXCEPTION, REQUESTS = "a string", "a number", "a list", "an exception", "the list of all requests"
TENSOR, RESPONSE, ERROR, REQUEST = "a Tensor", "an InferenceResponse", "a TritonError", "an InferenceRequest"
ARRAY = "an array"
TYPES = {
    "float16": "FP16", "float32": "FP32", "float64": "FP64", "bool": "BOOL", "bytes": "STRING", "object": "STRING",
    **{f"{kind}{bits}": f"{kind.upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "str": "",
}  # fmt: skip
"""numpy's types and Triton's. Triton has none for Python strings."""
_MODULES = {UTILS: "pb_utils", "numpy": "numpy"}
_MADE = {"Tensor": TENSOR, "Tensor.from_dlpack": TENSOR, "InferenceResponse": RESPONSE, "TritonError": ERROR,
         "InferenceRequest": REQUEST, "TritonModelException": EXCEPTION}  # fmt: skip
_DEPTH = 6
"""The longest chain of names, attributes or calls that is followed."""
_SAME_TYPE = frozenset({"reshape", "copy", "flatten", "squeeze", "expand_dims"})
"""Methods and functions that keep the type of their array."""
_FLOATS = frozenset({"zeros", "ones", "empty", "eye", "linspace", "random.rand", "random.randn"})
_DTYPE_AT = {"array": 1, "asarray": 1, "zeros": 1, "ones": 1, "empty": 1, "full": 2, "eye": 3}
"""The position of the argument dtype."""
_NAMES = {"float": "float64", "int": "int64", "bool": "bool", "str": "str", "object": "object", "bool_": "bool",
          "str_": "str", "object_": "object", "bytes_": "bytes"}  # fmt: skip


class Names:
    """The names under which a file uses pb_utils and numpy."""

    def __init__(self, tree: ast.Module) -> None:
        self.bound = Counter(bindings(tree))
        self.executes = [item for node in classes(tree) for item in node.body if getattr(item, "name", "") == "execute"]
        self._full = {"pb_utils": "pb_utils"}
        nodes = list(ast.walk(tree))
        for node in nodes:
            match node:
                case ast.Import(names=aliases):
                    self._full |= {a.asname or a.name: _MODULES[a.name] for a in aliases if a.name in _MODULES}
                case ast.ImportFrom(module=module, names=aliases) if module == UTILS:
                    self._full |= {a.asname or a.name: f"pb_utils.{a.name}" for a in aliases}
        for node in nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self.bound[name] == 1:
                    self._full |= {name: f"pb_utils.{kind}"} if (kind := self.of(value)) in _MADE else {}

    def of(self, node: ast.expr, module: str = "pb_utils") -> str:
        """Returns what `node` names in a module, e.g. Logger.log_info or random.rand; an empty string if nothing."""
        path = ""
        for _ in range(_DEPTH):
            if isinstance(node, ast.Attribute):
                path, node = f".{node.attr}{path}", node.value
        full = self._full.get(node.id, "") + path if isinstance(node, ast.Name) else ""
        return full.removeprefix(f"{module}.") if full.startswith(f"{module}.") else ""

    def is_builtin(self, name: str) -> bool:
        """Whether `name` is Python's own: the file doesn't bind it."""
        return name in dir(builtins) and not self.bound[name]


class Scope:
    """The values of the expressions in one function, as far as the source shows them.

    A name that the function binds exactly once, by an assignment, stands for the assigned expression. Any other name is
    unknown.
    """

    def __init__(self, function: Function, names: Names) -> None:
        self.names = names
        self._values: dict[str, ast.expr] = {}
        self._kinds: dict[str, str] = {}
        self._elements: dict[ast.expr, str] = {}
        count = Counter(bindings(function))
        arguments = [*function.args.posonlyargs, *function.args.args]
        if function in names.executes and len(arguments) > 1 and count[arguments[1].arg] == 1:
            self._kinds[arguments[1].arg] = REQUESTS
        for node in inside(function):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    if count[name] == 1 and node.value is not None:
                        self._values[name] = node.value
                case ast.ExceptHandler(name=str(name)) if count[name] == 1:
                    self._kinds[name] = EXCEPTION

    def follow(self, node: ast.expr) -> ast.expr:
        """Returns the expression for which `node` stands: itself, if it isn't a name that is bound once."""
        for _ in range(_DEPTH):
            node = self._values.get(node.id, node) if isinstance(node, ast.Name) else node
        return node

    def kind(self, node: ast.expr, depth: int = _DEPTH) -> str:
        """Returns the kind of the value of `node`; an empty string if it is unknown."""
        node = self.follow(node)
        match node:
            case ast.Name(id=name):
                return self._kinds.get(name, "")
            case ast.Constant(value=str()) | ast.JoinedStr() | ast.Call(func=ast.Name(id="str" | "repr")):
                return TEXT
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="format" | "join")):
                return TEXT
            case ast.BinOp(left=left, op=ast.Add() | ast.Mod()) if depth:
                return TEXT if self.kind(left, depth - 1) == TEXT else ""
            case ast.Constant(value=bool() | int() | float()):
                return NUMBER
            case ast.List() | ast.ListComp() | ast.Call(func=ast.Name(id="list" | "sorted")):
                return LIST
            case ast.Call(func=ast.Name(id=name)) if name.endswith(("Error", "Exception")) and (
                self.names.is_builtin(name)
            ):
                return EXCEPTION
            case ast.Call(func=function) if kind := _MADE.get(self.names.of(function)):
                return kind
            case ast.Call(func=ast.Attribute(attr="as_numpy")):
                return ARRAY
        return ARRAY if self.dtype(node) else ""

    def dtype(self, node: ast.expr, depth: int = _DEPTH) -> str:
        """Returns numpy's type of an array, e.g. float64; an empty string if it is unknown or not an array."""
        match self.follow(node):
            case ast.Call(func=ast.Attribute(attr="astype"), args=[argument, *_]):
                return self._named(argument)
            case ast.BinOp(left=left, right=ast.Constant(value=int() | float())) if depth:
                return "float64" if self.dtype(left, depth - 1) == "float64" else ""
            case ast.Call(func=ast.Attribute(value=owner, attr=attr) as function, args=args, keywords=keywords) if (
                depth
            ):
                keys = {keyword.arg: keyword.value for keyword in keywords}
                if keys.keys() & {None, "out", "retstep"} or any(isinstance(a, ast.Starred) for a in args):
                    return ""
                name = self.names.of(function, "numpy")
                if (name or attr) in _SAME_TYPE:
                    return self.dtype(args[0] if name and args else owner, depth - 1)
                return self._made(name, args, keys, depth) if name else ""
        return ""

    def _made(self, name: str, args: list[ast.expr], keys: dict[str | None, ast.expr], depth: int) -> str:
        """Returns the type of the array that a function of numpy makes."""
        at = _DTYPE_AT.get(name, 4)
        if data_type := keys.get("dtype", args[at] if len(args) > at else None):
            return self._named(data_type) if name in _DTYPE_AT or name == "arange" else ""
        if name in _FLOATS:
            return "float64"
        if name in ("argmax", "argmin", "argsort") and "axis" in keys:
            return "int64"
        if name in ("array", "asarray") and args:
            value = self.follow(args[0])
            grows = value is not args[0] and isinstance(value, ast.List)
            return self.dtype(value, depth - 1) or ("" if grows else self._element(value))
        return self._element(args[1]) if name == "full" and len(args) > 1 else ""

    def _element(self, node: ast.expr) -> str:
        """Returns numpy's type of the elements of a list, or of one value. Finds it once."""
        if node not in self._elements:
            types = {_scalar(element) for element in _innermost(node)}
            mixed = types == {"int64", "float64"}
            self._elements[node] = "float64" if mixed else types.pop() if len(types) == 1 else ""
        return self._elements[node]

    def _named(self, node: ast.expr) -> str:
        """Returns the type that `dtype=` or astype names."""
        match node:
            case ast.Name(id=name) if self.names.is_builtin(name):
                return _NAMES.get(name, "")
            case ast.Constant(value=str(name)):
                pass
            case _:
                name = self.names.of(node, "numpy")
        return _NAMES.get(name, name if name in TYPES else "")


def _innermost(node: ast.expr) -> Iterator[ast.expr]:
    """Returns the elements of a list and of the lists in it, or the value itself."""
    todo = [node]
    while todo:
        match todo.pop():
            case ast.List(elts=[_, *_] as elements) | ast.Tuple(elts=[_, *_] as elements):
                todo.extend(elements)
            case ast.ListComp(elt=inner) | ast.BinOp(left=ast.List() as inner, op=ast.Mult()):
                todo.append(inner)
            case value:
                yield value


def _scalar(node: ast.expr) -> str:
    """Returns numpy's type of one value; an empty string if it is unknown."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() as inner):
            return _scalar(inner)
        case ast.Constant(value=int(number)) if number >= 2**63:
            return ""
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return _NAMES[type(value).__name__]
        case ast.Call(func=ast.Name(id="len" | "int" | "float" | "str" as name)):
            return "int64" if name == "len" else _NAMES[name]
        case ast.JoinedStr():
            return "str"
    return ""
