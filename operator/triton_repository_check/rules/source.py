"""Checks of the syntax and the methods of model.py, without running it.

The Python that runs the check parses the source. Syntax that a newer Python of the server may accept is a warning.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator
from functools import lru_cache

from triton_repository_check.expected import Expected
from triton_repository_check.findings import Finding, Severity
from triton_repository_check.model import Model, Repository
from triton_repository_check.places import Node, at
from triton_repository_check.rules.base import Checks, each_model, each_model_expected, error, warning
from triton_repository_check.versions import python_of

CODES = {
    "TR301": "model.py: syntax error",
    "TR302": "model.py: class TritonPythonModel is missing",
    "TR303": "model.py: method execute is missing",
    "TR304": "model.py: a method has the wrong number of arguments",
    "TR310": "model.py: pb_utils is used but not imported",
    "TR311": "model.py: the server's Python is too old for the syntax",
}

CLASS = "TritonPythonModel"
UTILS = "triton_python_backend_utils"

Function = ast.FunctionDef | ast.AsyncFunctionDef

_NEWER = re.compile(
    "|".join(
        (
            r"\b[fFrR]{1,2}[\"']",  # 3.12: any quotes within an f-string
            r"^\s*type\s+\w+",  # 3.12: type X = int
            r"^\s*(?:async\s+)?(?:def|class)\s+\w+\s*\[",  # 3.12: def first[T](…)
            r"^\s*except\s+[\w.]+\s*,",  # 3.14: except A, B:
            r"\bt[\"']",  # 3.14: t"…"
        )
    )
)
"""Lines that a Python after 3.11 may accept, but this one doesn't."""
_ARGUMENTS = {"__init__": 0, "initialize": 1, "execute": 1, "finalize": 0, "is_ready": 0}
"""Number of arguments that the backend passes to each method, without self."""


def python(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR301-TR303: syntax error, missing class, or missing execute, without which the model fails every request."""
    for file, text in model.sources.items():
        try:
            tree = _parse(text)
        except SyntaxError as problem:
            yield _syntax(file, problem, python_of(expected.server) if expected.server else None)
            continue
        except (ValueError, RecursionError, MemoryError) as problem:  # null bytes; nesting beyond the parser
            yield error(file, "TR301", f"cannot be parsed: {problem}", "correct the Python source")
            continue
        if not _binds(tree.body, CLASS):
            yield error(
                file,
                "TR302",
                f"class {CLASS} is missing: the python backend needs it",
                f"rename the model's class to {CLASS}, or add it",
            )
        for node in classes(tree):
            if not _may_have(node, tree, "execute"):
                message = f"class {CLASS} has no method execute"
                yield error(file, "TR303", message, "add def execute(self, requests)", place(node))


def methods(_: Repository, model: Model) -> Iterator[Finding]:
    """TR304, TR310: a method doesn't fit the backend's call, or pb_utils isn't imported."""
    for file, tree in trees(model):
        if unbound := _unbound(tree):
            message = f"{unbound.id} is used but never imported"
            yield error(file, "TR310", message, f"add import {UTILS} as {unbound.id}", place(unbound))
        for node in classes(tree):
            for method in node.body:
                if isinstance(method, Function) and not method.decorator_list:
                    yield from _called(file, method)


def newer(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR311: the Python in the server image is too old for the syntax."""
    version = python_of(expected.server) if expected.server else None
    if version is None:
        return
    for file, _tree in trees(model):
        try:
            _parse(model.sources[file], version)
        except SyntaxError as problem:
            yield warning(
                file,
                "TR311",
                f"syntax error in Python {version[0]}.{version[1]}, the version in the server image: {problem.msg}",
                "use the older syntax, unless your server image contains a newer Python",
                at(problem.lineno or 1, problem.offset or 1),
            )


def trees(model: Model) -> Iterator[tuple[str, ast.Module]]:
    """Returns the path and the syntax tree of each Python file that can be parsed."""
    for file, text in model.sources.items():
        if (tree := _tree(text)) is not None:
            yield file, tree


def _tree(text: str) -> ast.Module | None:
    try:
        return _parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _parse(text: str, version: tuple[int, int] | None = None) -> ast.Module:
    """Returns the syntax tree. Suppresses the parser's warnings. Raises SyntaxError and others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, feature_version=version)


def classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    """Returns the model's class if it is defined at the top level."""
    return (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == CLASS)


def place(node: ast.expr | ast.stmt) -> Node:
    """Returns the line and column where `node` starts, both counted from 1."""
    return at(node.lineno, node.col_offset + 1)


def may_complete_config(model: Model) -> bool:
    """Whether model.py may complete config.pbtxt, also by a class from elsewhere, or because its source is unknown."""
    return _may_complete(model.backend == "python", tuple(model.sources.values()))


@lru_cache(1024)  # an ensemble asks for each of its steps, and parsing takes long
def _may_complete(is_python: bool, texts: tuple[str, ...]) -> bool:
    name = "auto_complete_config"
    if any(name in text for text in texts):
        return True
    parsed = [tree for tree in map(_tree, texts) if tree is not None]
    if is_python and (not parsed or len(parsed) < len(texts)):
        return True
    return any(
        any(_may_have(node, tree, name) for node in classes(tree))
        or (_binds(tree.body, CLASS) and not any(classes(tree)))
        for tree in parsed
    )


def _syntax(file: str, problem: SyntaxError, server: tuple[int, int] | None) -> Finding:
    """Returns an error, or a warning if the server's Python may accept the syntax."""
    text = (problem.text or "").strip()[:80]
    ahead = server is not None and server > sys.version_info[:2]
    looks_newer = bool(_NEWER.search(problem.text or "")) or problem.msg.startswith("f-string")
    newer = looks_newer and (ahead or server is None)
    message = f"syntax error: {problem.msg}" + (f", in: {text}" if text else "")
    if newer:
        message += f" (parsed by Python {sys.version_info[0]}.{sys.version_info[1]}; the server's may be newer)"
    return Finding(
        "TR301",
        Severity.NOTE if newer and ahead else Severity.WARNING if newer else Severity.ERROR,
        file,
        problem.lineno,
        problem.offset,
        message,
        "correct the Python source",
    )


def _called(file: str, method: Function) -> Iterator[Finding]:
    """TR304: the method's signature doesn't accept the backend's call."""
    count = _ARGUMENTS.get(method.name)
    if count is None or _takes(method.args, count + 1):
        return
    parameters = ", ".join(["self", {"initialize": "args", "execute": "requests"}.get(method.name, "")]).rstrip(", ")
    # The backend only logs an exception of finalize. Only newer servers call is_ready.
    yield (warning if method.name in ("finalize", "is_ready") else error)(
        file,
        "TR304",
        f"{method.name} takes {_count(method.args)}, but the backend calls it with {count + 1}, self included",
        f"change it to def {method.name}({parameters})",
        place(method),
    )


def _unbound(tree: ast.Module) -> ast.Name | None:
    """Returns the first use of pb_utils in a file that never binds the name; else None."""
    bound = any(
        (isinstance(node, ast.alias) and ((node.asname or node.name) == "pb_utils" or node.name == "*"))
        or (isinstance(node, ast.Name) and node.id == "pb_utils" and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.arg) and node.arg == "pb_utils")
        for node in ast.walk(tree)
    )
    uses = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "pb_utils")
    return None if bound else min(uses, key=lambda n: (n.lineno, n.col_offset), default=None)


def imports_local_modules(model: Model, file: str, tree: ast.Module) -> bool:
    """Whether the file imports a module from its own directory or the model's, which may create tensors too."""
    entries = (*model.folders.get(file.split("/")[-2], ()), *model.files, *model.folders)
    beside = {name.split(".")[0] for name in entries}
    imported = {
        (node.module or "").split(".")[0] if isinstance(node, ast.ImportFrom) else alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return bool(beside & imported) or any(isinstance(n, ast.ImportFrom) and n.level > 0 for n in ast.walk(tree))


def _takes(args: ast.arguments, count: int) -> bool:
    """Whether the signature accepts `count` positional arguments."""
    positional = len(args.posonlyargs) + len(args.args)
    required = positional - len(args.defaults)
    keywords = sum(default is None for default in args.kw_defaults)
    return required <= count and (count <= positional or args.vararg is not None) and not keywords


def _count(args: ast.arguments) -> str:
    count = len(args.posonlyargs) + len(args.args)
    return f"{count} argument{'' if count == 1 else 's'}"


def inside(method: Function) -> Iterator[ast.AST]:
    """Returns all nodes of `method`, without those of nested functions and classes."""
    todo: list[ast.AST] = list(method.body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            todo.extend(ast.iter_child_nodes(node))


def bindings(tree: ast.AST) -> Iterator[str]:
    """Returns the names that the nodes of a tree bind in any scope, each as often as it is bound."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name.split(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from names
        yield from (parameter.name for parameter in getattr(node, "type_params", ()))


def returns(method: Function) -> list[ast.Return]:
    """Returns the return statements of `method`, sorted by line."""
    statements = [node for node in inside(method) if isinstance(node, ast.Return)]
    return sorted(statements, key=lambda node: node.lineno)


def ends_in_raise(method: Function) -> bool:
    """Whether the last statement of `method` is a raise."""
    return isinstance(method.body[-1], ast.Raise)


def _binds(body: list[ast.stmt], name: str) -> bool:
    """Whether the top level may bind `name` by a class, import or assignment, also inside of if, try and with."""
    for top in body:
        for node in (top, *ast.walk(top)) if not isinstance(top, ast.ClassDef | ast.FunctionDef) else (top,):
            match node:
                case ast.ClassDef(name=bound) | ast.FunctionDef(name=bound) if bound == name:
                    return True
                case ast.Name(id=bound, ctx=ast.Store()) if bound == name:
                    return True
                case ast.alias() if name in (node.asname or node.name, "*") or node.name == "*":
                    return True
    return False


def _may_have(node: ast.ClassDef, tree: ast.Module, name: str, depth: int = 8) -> bool:
    """Whether the class may have a method.

    It may come from a metaclass, from a decorator, or from a base class that has it or isn't in the file.
    """
    if node.keywords or node.decorator_list or _binds_method(node, name) or not depth:
        return True
    local = {top.name: top for top in tree.body if isinstance(top, ast.ClassDef)}
    for base in node.bases:
        if not isinstance(base, ast.Name):
            return True
        if base.id != "object" and (base.id not in local or _may_have(local[base.id], tree, name, depth - 1)):
            return True
    return False


def _binds_method(node: ast.ClassDef, name: str) -> bool:
    for item in node.body:
        for inner in ast.walk(item) if not isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) else (item,):
            match inner:
                case ast.FunctionDef(name=bound) | ast.AsyncFunctionDef(name=bound) if bound == name:
                    return True
                case ast.Name(id=bound, ctx=ast.Store()) | ast.alias(name=bound) if bound == name:
                    return True
    return False


CHECKS: Checks = (
    ("model.py", each_model_expected(python)),
    ("model.py: methods", each_model(methods)),
    ("model.py: the server's Python", each_model_expected(newer)),
)
