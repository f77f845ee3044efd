"""Checks of what model.py takes from its surroundings: its configuration, and modules beside it."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping

from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.rules.base import Checks, did_you_mean, each_model, error, warning
from triton_repository_check.rules.calls import straight
from triton_repository_check.rules.source import (
    UTILS,
    Function,
    classes,
    inside,
    may_complete_config,
    place,
    trees,
)

CODES = {
    "TR322": "model.py: the imported module isn't on Python's path",
    "TR323": "model.py: it reads a parameter that config.pbtxt doesn't have",
    "TR324": "model.py: model_config is used without json.loads",
    "TR325": "model.py: it writes below the model's directory",
}

_INSTALLED = sys.stdlib_module_names | {UTILS, "numpy"}
"""Modules that each server has."""
_ROUNDS = 8
"""The longest chain of assignments that is followed."""
_DERIVED = ("text", "configuration", "parameters")


def configuration(_: Repository, model: Model) -> Iterator[Finding]:
    """TR323, TR324: model.py reads a missing parameter, or uses the configuration before it is parsed."""
    if model.config is None:
        return
    for file, tree in trees(model):
        for node in classes(tree):
            methods = {item.name: item for item in node.body if isinstance(item, Function) and not item.decorator_list}
            if "initialize" in methods and len(methods["initialize"].args.args) > 1:
                yield from _configuration(file, node, methods, model)


def _configuration(file: str, node: ast.ClassDef, methods: dict[str, Function], model: Model) -> Iterator[Finding]:
    first = methods["initialize"]
    arguments = first.args.args[1].arg
    if not _only_read(first, {arguments: "arguments"}, ("arguments",)):
        return
    origins = {arguments: "arguments"} | _origins(node, first, {arguments: "arguments"})
    attributes = {name: what for name, what in origins.items() if "." in name}
    unknown = may_complete_config(model) or not _only_read(node, origins, ("configuration", "parameters"))
    for method, names in ((first, origins), (methods.get("execute"), attributes)):
        for part in straight(method.body) if method else ():
            if not isinstance(part, ast.expr):
                continue
            if why := _misused(part, names):
                yield error(file, "TR324", why, f"use json.loads({arguments}['model_config'])", place(part))
            elif not unknown:
                yield from _parameter(file, part, names, model)


def _what(node: ast.AST, origins: Mapping[str, str], depth: int = 4) -> str:
    """Returns what an expression certainly is: `arguments`, `text`, `configuration`, `parameters`, or nothing.

    The text is that of the configuration in the arguments. `origins`: the same for variables.
    """
    match node:
        case _ if not depth:
            return ""
        case ast.Name() | ast.Attribute():
            return origins.get(_variable(node), "")
        case ast.Subscript(value=inner, slice=ast.Constant(value="model_config")):
            return "text" if _what(inner, origins, depth - 1) == "arguments" else ""
        case ast.Call(func=ast.Attribute(value=ast.Name(id="json"), attr="loads"), args=[inner]):
            return "configuration" if _what(inner, origins, depth - 1) == "text" else ""
        case ast.Subscript(value=inner, slice=ast.Constant(value="parameters")):
            return "parameters" if _what(inner, origins, depth - 1) == "configuration" else ""
    return ""


def _variable(node: ast.AST) -> str:
    """Returns the name of a variable, or of an attribute of self with `self.`; empty for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return f"self.{name}"
    return ""


def _origins(node: ast.ClassDef, method: Function, origins: Mapping[str, str]) -> dict[str, str]:
    """Returns what the variables are that `method`, and the attributes that the class, binds once."""
    stored = Counter(
        _variable(part)
        for whole, kind in ((method, ast.Name), (node, ast.Attribute))
        for part in ast.walk(whole)
        if isinstance(part, kind) and isinstance(part.ctx, ast.Store | ast.Del)
    )
    bound: dict[str, str] = {}
    assigned = [part for part in inside(method) if isinstance(part, ast.Assign | ast.AnnAssign) and part.value]
    for part in sorted(assigned, key=lambda part: part.lineno):
        what = _what(part.value, {**origins, **bound})  # type: ignore[arg-type]
        names = [_variable(target) for target in (part.targets if isinstance(part, ast.Assign) else [part.target])]
        bound |= {name: what for name in names if what and stored[name] == 1}
    return bound


def _only_read(node: ast.AST, origins: Mapping[str, str], kinds: tuple[str, ...]) -> bool:
    """Whether no statement may change values of these kinds: they aren't bound again, stored into, or passed on."""
    for parent in ast.walk(node):
        for child in ast.iter_child_nodes(parent):
            if _what(child, origins) not in kinds or isinstance(parent, ast.Compare | ast.FormattedValue | ast.Expr):
                continue
            match parent:
                case ast.Subscript(ctx=ast.Load()) | ast.Attribute(attr="get" | "keys" | "values" | "items"):
                    continue
                case ast.Call(func=ast.Attribute(value=ast.Name(id="json" | "pb_utils"))):
                    continue
                case ast.Assign(targets=targets) if all(origins.get(_variable(t)) in _DERIVED for t in targets):
                    continue
                case ast.AnnAssign(target=target) if origins.get(_variable(target)) in _DERIVED:
                    continue
            return False
    return True


def _misused(node: ast.expr, origins: Mapping[str, str]) -> str:
    """Returns why an expression that uses the arguments or the text raises an exception; empty if it doesn't."""
    match node:
        case (
            ast.Subscript(value=value, slice=ast.Constant(value=str()))
            | ast.Attribute(value=value, attr="get" | "keys" | "values" | "items")
            | ast.Call(func=ast.Attribute(attr="get_input_config_by_name" | "get_output_config_by_name"),
                       args=[value, *_])
        ) if _what(value, origins) == "text":  # fmt: skip
            return f"{ast.unparse(value)} is JSON text, not a dict"
        case ast.Call(func=ast.Attribute(value=ast.Name(id="json"), attr="loads"), args=[ast.Name(id=name)]):
            return f"{name} is a dict, not JSON text" if origins.get(name) == "arguments" else ""
    return ""


def _parameter(file: str, node: ast.expr, origins: Mapping[str, str], model: Model) -> Iterator[Finding]:
    match node:
        case ast.Subscript(value=value, slice=ast.Constant(value=str(key)), ctx=ast.Load()):
            if _what(value, origins) == "parameters" and key not in model.config.parameters:
                message = f"reads parameter {key!r}, which config.pbtxt doesn't have"
                remedy = did_you_mean(key, model.config.parameters.keys())
                add = f'add parameters {{ key: "{key}" value: {{ string_value: "…" }} }}'
                yield error(file, "TR323", message, remedy or add, place(node))


def writes(_: Repository, model: Model) -> Iterator[Finding]:
    """TR325: model.py writes below its own directory, which is read-only in the operator's servers."""
    for file, tree in trees(model):
        own = _own_paths(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and (path := _written(node)) is not None and _is_own(path, own):
                yield warning(
                    file,
                    "TR325",
                    "writes below the model's directory, which is read-only in a server",
                    "write to /tmp, or to a volume of spec.podTemplate",
                    place(node),
                )


def _own_paths(tree: ast.Module) -> frozenset[str]:
    """Returns the variables and attributes of self that are always a path of the model's directory."""
    stored = Counter(_variable(n) for n in ast.walk(tree) if isinstance(getattr(n, "ctx", None), ast.Store))
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                values.setdefault(_variable(target), []).append(node.value)
    sure = {name: paths for name, paths in values.items() if name and len(paths) == stored[name]}
    own: frozenset[str] = frozenset()
    for _ in range(_ROUNDS):
        own |= {name for name, paths in sure.items() if all(_is_own(path, own) for path in paths)}
    return own


def _is_own(path: ast.expr, own: frozenset[str]) -> bool:
    """Returns whether a path is made of the model's directory by joining, formatting or pathlib."""
    part: ast.expr | None = path
    while part is not None:
        match part:
            case ast.Name(id="__file__") | ast.Subscript(slice=ast.Constant(value="model_repository")):
                return True
            case ast.Name() | ast.Attribute() if _variable(part) in own:
                return True
        part = _start(part)
    return False


def _start(path: ast.expr) -> ast.expr | None:
    """Returns the expression with which a path begins, of which `path` is made; None if there is none."""
    match path:
        case ast.Attribute(value=value, attr="parent" | "parents") | ast.Subscript(value=value):
            return value
        case ast.BinOp(left=value) | ast.JoinedStr(values=[ast.FormattedValue(value=value), *_]):
            return value
        case ast.Call(func=ast.Attribute(value=value, attr="resolve" | "absolute" | "joinpath")):
            return value
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[value, *_]):
            return value if name in ("join", "dirname", "abspath", "realpath", "normpath", "Path", "str") else None
    return None


def _written(call: ast.Call) -> ast.expr | None:
    """Returns the path that a call certainly writes to; None for other calls."""
    mode = next((k.value for k in call.keywords if k.arg == "mode"), None)
    match call:
        case ast.Call(func=ast.Name(id="open"), args=[path, *rest]):
            mode = mode or next(iter(rest), None)
        case ast.Call(func=ast.Attribute(value=path, attr="open"), args=rest) if not isinstance(path, ast.Name) or (
            path.id not in ("io", "os", "gzip", "codecs", "zipfile", "tarfile")
        ):
            mode = mode or next(iter(rest), None)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr="makedirs" | "mkdir"), args=[path, *_]):
            return path
        case ast.Call(func=ast.Attribute(value=path, attr="write_text" | "write_bytes" | "mkdir" | "touch")):
            return path
        case _:
            return None
    writes = isinstance(mode, ast.Constant) and isinstance(mode.value, str) and bool(set("wax+") & set(mode.value))
    return path if writes else None


def modules(repository: Repository, model: Model) -> Iterator[Finding]:
    """TR322: a module lies elsewhere in the repository, where Python doesn't look.

    Python's path has the directories of the version and of the model. A warning, because the server image may have the
    module, too, or name the directory in PYTHONPATH.
    """
    for file, tree in trees(model):
        if _changes_path(tree):
            continue
        own = {name.split(".")[0] for name in model.files | model.folders.keys() | model.entries}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [(node.module or "").split(".")[0]]
            else:
                continue
            for name in names:
                path = "" if name in own or name in _INSTALLED else _elsewhere(repository, model, f"{name}.py")
                if path:
                    message = f"imports {name}, which is in {path}, where Python doesn't look"
                    remedy = f"copy it to {model.directory}/, unless the server image or PYTHONPATH has it"
                    yield warning(file, "TR322", message, remedy, place(node))


def _changes_path(tree: ast.Module) -> bool:
    """Whether the file may add directories to Python's path."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="sys"), attr="path") | ast.Attribute(attr="addsitedir"):
                return True
            case ast.ImportFrom(module="sys" | "site") | ast.Import(names=[ast.alias(name="sys", asname=str())]):
                return True
    return False


def _elsewhere(repository: Repository, model: Model, name: str) -> str:
    """Returns the path of the file at the top of the repository, or in another model; empty if there is none."""
    if name in repository.files:
        return name
    for other in repository.models.values():
        if other.name != model.name and name != "model.py":
            if name in other.files:
                return f"{other.directory}/{name}"
            if version := next((v for v in other.served if name in other.folders[str(v)]), None):
                return f"{other.directory}/{version}/{name}"
    return ""


CHECKS: Checks = (
    ("model.py: configuration", each_model(configuration)),
    ("model.py: modules elsewhere", each_model(modules)),
    ("model.py: writes", each_model(writes)),
)
