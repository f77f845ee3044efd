"""Checks of the tensors that model.py reads and creates against config.pbtxt."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.rules.base import Checks, each_model, error, instead, note, warning
from triton_repository_check.rules.kinds import Names
from triton_repository_check.rules.source import (
    Function,
    classes,
    imports_local_modules,
    may_complete_config,
    place,
    trees,
)

CODES = {
    "TR305": "model.py: config.pbtxt doesn't declare the input",
    "TR306": "model.py: config.pbtxt doesn't declare the output",
    "TR307": "model.py: a declared output is never created",
    "TR327": "model.py: config.pbtxt doesn't declare the tensor whose configuration it reads",
}

_CONFIGURATIONS = {"get_input_config_by_name": "input", "get_output_config_by_name": "output"}
_BRANCHES = (ast.IfExp, ast.BoolOp, ast.Lambda)
_PASS_ON = ("open(", "torch.", "np.", "numpy.", "tf.", "warnings.", "threading.")
"""Starts of decorators and context managers that don't suppress exceptions."""
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)


@dataclass(frozen=True, slots=True)
class Call:
    """A call in the source that names a tensor.

    - `name`: None if the source computes the name.
    - `used`: whether execute certainly uses an attribute of the result, which raises an exception on None.
    """

    name: str | None
    node: ast.expr
    used: bool = False


def names(repository: Repository, model: Model) -> Iterator[Finding]:
    """TR305-TR307: model.py reads or creates undeclared tensors, or never creates a declared output."""
    config = model.config
    if config is None or may_complete_config(model):
        return
    inputs = {t.name for t in config.input} | {t.name for t in config.sequence_batching.control_input}
    inputs |= {t.input_name for t in config.sequence_batching.state}
    inputs |= {name for t in config.batch_input for name in t.target_name}
    outputs = {t.name for t in config.output} | {t.output_name for t in config.sequence_batching.state}
    for file, tree in trees(model):
        texts, utils = constants(tree), Names(tree)
        for call in _reads(tree, texts, utils):
            if call.name is not None and call.name not in inputs:
                level = error if call.used else warning
                yield level(
                    file,
                    "TR305",
                    f"reads input {call.name!r}, which config.pbtxt doesn't declare: the result is None",
                    instead(call.name, inputs, "a declared input") if inputs else "declare it in config.pbtxt",
                    place(call.node),
                )
        # Tensors in requests to other models have the names of these models.
        if _mentions(tree, "InferenceRequest"):
            continue
        writes = list(_writes(tree, texts, utils))
        strange = [call for call in writes if call.name is not None and call.name not in outputs]
        written = {call.name for call in writes}
        lacking = [t for t in config.output if t.name not in written]
        # Without a response's output, the next step of an ensemble fails. Clients may not ask for it.
        needed = any(tensor.name in mapped(repository, model) for tensor in lacking)
        complete = all(call.name for call in writes) and not imports_local_modules(model, file, tree)
        for call in strange:
            # If all outputs are created, this one may be an intermediate result, or an extra that the backend drops.
            level = (error if needed and complete else warning) if lacking else note
            yield level(
                file,
                "TR306",
                f"creates output {call.name!r}, which config.pbtxt doesn't declare: the backend drops it",
                instead(str(call.name), outputs, "a declared output") if outputs else "declare it in config.pbtxt",
                place(call.node),
            )
        sure = writes and not strange and all(call.name is not None for call in writes)
        if sure and not imports_local_modules(model, file, tree):
            for index, tensor in enumerate(config.output):
                if tensor.name not in {call.name for call in writes}:
                    yield warning(
                        model.config_path,
                        "TR307",
                        f"output {tensor.name!r} is declared, but {file.rpartition('/')[2]} never creates it",
                        "create it in execute, or remove it from config.pbtxt",
                        model.where.find("output", index, "name"),
                    )


def configurations(_: Repository, model: Model) -> Iterator[Finding]:
    """TR327: model.py asks for the configuration of a tensor that isn't declared, and gets None."""
    if model.config is None or may_complete_config(model):
        return
    for file, tree in trees(model):
        texts, utils = constants(tree), Names(tree)
        used = {id(node.value) for node in certain(tree) if isinstance(node, ast.Attribute | ast.Subscript)}
        for node in ast.walk(tree):
            function = utils.of(node.func) if isinstance(node, ast.Call) else ""
            if not isinstance(node, ast.Call) or function not in _CONFIGURATIONS:
                continue
            side = _CONFIGURATIONS[function]
            declared = {tensor.name for tensor in getattr(model.config, side)}
            argument = node.args[1] if len(node.args) > 1 else keyword(node, "name")
            name = literal(argument, texts) if argument is not None else None
            if name is not None and name not in declared:
                yield (error if id(node) in used else warning)(
                    file,
                    "TR327",
                    f"asks for the configuration of {side} {name!r}, which config.pbtxt doesn't declare: it gets None",
                    instead(name, declared, f"a declared {side}") if declared else "declare it in config.pbtxt",
                    place(argument or node),
                )


def mapped(repository: Repository, model: Model) -> set[str]:
    """Returns the model's outputs that ensembles use."""
    steps = (step for other in repository.models.values() for step in other.steps if step.model_name == model.name)
    return {own for step in steps for own in step.output_map}


def _reads(tree: ast.Module, texts: dict[str, str], utils: Names) -> Iterator[Call]:
    used = {id(node.value) for node in certain(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and utils.of(node.func) == "get_input_tensor_by_name":
            argument = node.args[1] if len(node.args) > 1 else keyword(node, "name")
            if argument is not None:
                yield Call(literal(argument, texts), argument, id(node) in used)


def certain(tree: ast.Module) -> Iterator[ast.AST]:
    """Returns the nodes of initialize and execute that are always reached: see `_straight`."""
    for node in classes(tree):
        methods = [method for method in node.body if isinstance(method, Function)]
        for method in methods:
            called = method.name in ("initialize", "execute")
            if called and not any(map(_may_suppress, method.decorator_list)):
                yield from _straight(method.body)


def _straight(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Returns the nodes that are certainly reached: none in branches, and none after a statement that may leave."""
    for statement in body:
        match statement:
            case ast.For(body=inner) if _has_items(statement):
                yield from _straight(inner)
            case ast.With(body=inner, items=items) if not any(
                isinstance(item.context_expr, ast.Call) and _may_suppress(item.context_expr) for item in items
            ):
                yield from _straight(inner)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Expr() | ast.Return():
                if not any(_is_branch(node) for node in ast.walk(statement)):
                    yield from ast.walk(statement)
            case _ if any(isinstance(node, _LEAVES) for node in ast.walk(statement)):
                return


def _is_branch(node: ast.AST) -> bool:
    return isinstance(node, _BRANCHES) or (isinstance(node, ast.comprehension) and not _has_items(node))


def _has_items(loop: ast.For | ast.comprehension) -> bool:
    """Whether a loop certainly has a first round: over the requests, which are at least one, without a condition."""
    over_requests = any(isinstance(node, ast.Name) and node.id == "requests" for node in ast.walk(loop.iter))
    return over_requests and not getattr(loop, "ifs", ())


def _may_suppress(manager: ast.expr) -> bool:
    """Whether a decorator, or a call that makes a context manager, may suppress exceptions: all but known ones."""
    return not ast.unparse(manager).startswith(_PASS_ON)


def _writes(tree: ast.Module, texts: dict[str, str], utils: Names) -> Iterator[Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and utils.of(node.func) in ("Tensor", "Tensor.from_dlpack"):
            argument = node.args[0] if node.args else keyword(node, "name")
            if argument is not None:
                yield Call(literal(argument, texts), argument)


def keyword(node: ast.Call, name: str) -> ast.expr | None:
    """Returns the value of a named argument; None if the call has none."""
    return next((keyword.value for keyword in node.keywords if keyword.arg == name), None)


def literal(node: ast.expr, texts: dict[str, str]) -> str | None:
    """Returns the string that `node` certainly is; None if it is unknown. `texts` are the file's constants."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return texts.get(name)
        case ast.Attribute(value=ast.Name(id="self" | "cls" | "TritonPythonModel"), attr=name):
            return texts.get(f".{name}")
    return None


def constants(tree: ast.Module) -> dict[str, str]:
    """Returns the strings of names that the file binds only once, at the top level or in the model's class.

    A constant of the class has a dot before its name.
    """
    bound: Counter[str] = Counter()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                bound[name] += 1
            case ast.Attribute(attr=name, ctx=ast.Store()):
                bound[f".{name}"] += 1
    strings = {}
    for prefix, body in (("", tree.body), *((".", node.body) for node in classes(tree))):
        for top in body:
            match top:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                    if bound[name] == 1 and not bound[f".{name}"]:
                        strings[prefix + name] = text
    return strings


def _mentions(tree: ast.Module, name: str) -> bool:
    return any(getattr(node, "attr", getattr(node, "id", "")) == name for node in ast.walk(tree))


CHECKS: Checks = (
    ("model.py: tensors", each_model(names)),
    ("model.py: configurations of tensors", each_model(configurations)),
)
