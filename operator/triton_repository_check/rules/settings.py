"""Checks of what model.py takes from its surroundings: its configuration, and modules beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.rules.base import did_you_mean, error, warning
from triton_repository_check.rules.calls import straight
from triton_repository_check.rules.names import always_evaluated
from triton_repository_check.rules.source import Function, classes, inside, may_complete_config, place, trees

_CONFIG = "model_config"


def configuration(_: Repository, model: Model) -> Iterator[Finding]:
    """TR323, TR324: initialize reads a missing parameter, or uses the configuration before it is parsed."""
    if model.config is None:
        return
    for file, tree in trees(model):
        for method in (item for node in classes(tree) for item in node.body):
            if isinstance(method, Function) and method.name == "initialize" and len(method.args.args) > 1:
                yield from _unparsed(file, method, method.args.args[1].arg)
                if not may_complete_config(model):
                    yield from _parameters(file, method, model)


def _unparsed(file: str, method: Function, arguments: str) -> Iterator[Finding]:
    raw = {name for name, count in _bound(method).items() if count == 1} & {
        node.targets[0].id
        for node in inside(method)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_raw(node.value, arguments, ())
    }
    for node in straight(method.body):
        match node:
            case ast.Subscript(value=value, slice=ast.Constant(value=str())):
                pass
            case ast.Call(func=ast.Attribute(attr="get_input_config_by_name" | "get_output_config_by_name"),
                          args=[value, *_]):  # fmt: skip
                pass
            case _:
                continue
        if _is_raw(value, arguments, raw):
            message = f"{arguments}[{_CONFIG!r}] is JSON text, not a dict"
            yield error(file, "TR324", message, f"use json.loads({arguments}[{_CONFIG!r}])", place(node))


def _bound(method: Function) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in inside(method):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts[node.id] = counts.get(node.id, 0) + 1
    return counts


def _is_raw(node: ast.expr, arguments: str, raw: set[str] | tuple[()]) -> bool:
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key)):
            return name == arguments and key == _CONFIG
        case ast.Name(id=name):
            return name in raw
    return False


def _parameters(file: str, method: Function, model: Model) -> Iterator[Finding]:
    variables = {
        node.targets[0].id
        for node in inside(method)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_parameters(node.value, ())
    }
    for node in straight(method.body):
        match node:
            case ast.Subscript(value=value, slice=ast.Constant(value=str(key)), ctx=ast.Load()):
                if _is_parameters(value, variables) and key not in model.config.parameters:
                    message = f"reads parameter {key!r}, which config.pbtxt doesn't have"
                    remedy = did_you_mean(key, model.config.parameters.keys())
                    add = f'add parameters {{ key: "{key}" value: {{ string_value: "…" }} }}'
                    yield error(file, "TR323", message, remedy or add, place(node))


def _is_parameters(node: ast.expr, variables: set[str] | tuple[()]) -> bool:
    match node:
        case ast.Subscript(slice=ast.Constant(value="parameters")):
            return True
        case ast.Name(id=name):
            return name in variables
    return False


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
    """Returns the variables and attributes with a path of the model's directory: from __file__ or the arguments."""
    own: frozenset[str] = frozenset()
    assignments = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    for _ in assignments:
        targets = {ast.unparse(target) for node in assignments if _is_own(node.value, own) for target in node.targets}
        if targets <= own:
            break
        own |= targets
    return own


def _is_own(path: ast.expr, own: frozenset[str]) -> bool:
    """Returns whether a path is made of the model's directory by joining, formatting or pathlib."""
    match path:
        case ast.Name(id="__file__") | ast.Subscript(slice=ast.Constant(value="model_repository")):
            return True
        case ast.Name() | ast.Attribute():
            inner = path.value if isinstance(path, ast.Attribute) and path.attr in ("parent", "parents") else None
            return ast.unparse(path) in own or (inner is not None and _is_own(inner, own))
        case ast.BinOp(left=left):
            return _is_own(left, own)
        case ast.JoinedStr(values=[ast.FormattedValue(value=first), *_]):
            return _is_own(first, own)
        case ast.Subscript(value=value):
            return _is_own(value, own)
        case ast.Call(func=ast.Attribute(value=value, attr="resolve" | "absolute" | "joinpath")):
            return _is_own(value, own)
        case ast.Call(func=function, args=[first, *_]):
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            return name in ("join", "dirname", "abspath", "realpath", "normpath", "Path", "str") and _is_own(first, own)
    return False


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

    Python's path has the directories of the version and of the model. The server image may have the module, too.
    """
    for file, tree in trees(model):
        if any(isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path" for node in ast.walk(tree)):
            continue  # it may add the directory
        own = {name.split(".")[0] for name in model.files | model.folders.keys() | model.entries}
        sure = {id(node) for statement in tree.body for node in always_evaluated(statement)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [(node.module or "").split(".")[0]]
            else:
                continue
            for name in names:
                path = "" if name in own else _elsewhere(repository, model, f"{name}.py")
                if path:
                    level = error if id(node) in sure and "/" not in path else warning
                    message = f"imports {name}, which is in {path}, where Python doesn't look"
                    yield level(file, "TR322", message, f"copy it to {model.directory}/", place(node))


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
