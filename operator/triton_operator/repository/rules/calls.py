"""Checks of the tensors that model.py reads and creates against config.pbtxt."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from triton_operator.repository.findings import Finding
from triton_operator.repository.model import Model, Repository
from triton_operator.repository.rules.base import did_you_mean, error, listed, note, warning
from triton_operator.repository.rules.source import (
    Function,
    classes,
    imports_local_modules,
    may_complete_config,
    place,
    trees,
)

_READ = "get_input_tensor_by_name"
_WRITE = ("Tensor",)


_BRANCHES = (ast.IfExp, ast.BoolOp, ast.Lambda)
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)


@dataclass(frozen=True, slots=True)
class Call:
    """A call in the source that names a tensor."""

    name: str | None
    """None if the source computes the name."""
    node: ast.expr
    used: bool = False
    """Whether execute certainly uses an attribute of the result, which raises an exception on None."""


def names(repository: Repository, model: Model) -> Iterator[Finding]:
    """TR305-TR307: model.py reads or creates undeclared tensors, or never creates a declared output."""
    config = model.config
    if config is None or may_complete_config(model):
        return
    given = {t.name for t in config.input} | {t.name for t in config.sequence_batching.control_input}
    given |= {t.input_name for t in config.sequence_batching.state}
    given |= {name for t in config.batch_input for name in t.target_name}
    made = {t.name for t in config.output} | {t.output_name for t in config.sequence_batching.state}
    for file, tree in trees(model):
        constants = _constants(tree)
        for call in _reads(tree, constants):
            if call.name is not None and call.name not in given:
                level = error if call.used else warning
                yield level(
                    file,
                    "TR305",
                    f"reads input {call.name!r}, which config.pbtxt doesn't declare: the result is None",
                    did_you_mean(call.name, given) or f"use a declared input: {listed(sorted(given))}",
                    place(call.node),
                )
        # Tensors in requests to other models have the names of these models.
        if _mentions(tree, "InferenceRequest"):
            continue
        writes = list(_writes(tree, constants))
        strange = [call for call in writes if call.name is not None and call.name not in made]
        written = {call.name for call in writes}
        lacking = [t for t in config.output if t.name not in written]
        # Without a response's output, the next step of an ensemble fails. Clients may not ask for it.
        needed = any(tensor.name in _mapped(repository, model) for tensor in lacking)
        known = all(call.name for call in writes) and not imports_local_modules(model, file, tree)
        for call in strange:
            # If all outputs are created, this one may be an intermediate result, or an extra that the backend drops.
            level = (error if needed and known else warning) if lacking else note
            yield level(
                file,
                "TR306",
                f"creates output {call.name!r}, which config.pbtxt doesn't declare: the backend drops it",
                did_you_mean(str(call.name), made) or f"use a declared output: {listed(sorted(made))}",
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


def _mapped(repository: Repository, model: Model) -> set[str]:
    """Returns the model's outputs that ensembles use."""
    steps = (step for other in repository.models.values() for step in other.steps if step.model_name == model.name)
    return {own for step in steps for own in step.output_map}


def _reads(tree: ast.Module, constants: dict[str, str]) -> Iterator[Call]:
    used = {id(node.value) for node in _certain(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) == _READ:
            argument = node.args[1] if len(node.args) > 1 else _keyword(node, "name")
            if argument is not None:
                yield Call(_literal(argument, constants), argument, id(node) in used)


def _certain(tree: ast.Module) -> Iterator[ast.AST]:
    """Returns the nodes of execute that each request reaches: not in branches, and not after one that may leave."""
    for node in classes(tree):
        for method in node.body:
            if isinstance(method, Function) and method.name == "execute":
                yield from _straight(method.body)


def _straight(body: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in body:
        match statement:
            case ast.For(body=inner) | ast.With(body=inner):
                yield from _straight(inner)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Expr() | ast.Return():
                if not any(isinstance(node, _BRANCHES) for node in ast.walk(statement)):
                    yield from ast.walk(statement)
            case _ if any(isinstance(node, _LEAVES) for node in ast.walk(statement)):
                return


def _writes(tree: ast.Module, constants: dict[str, str]) -> Iterator[Call]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        made = _called(node) in _WRITE
        from_dlpack = (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "from_dlpack"
            and getattr(node.func.value, "attr", getattr(node.func.value, "id", "")) in _WRITE
        )
        if made and isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") != "pb_utils":
            made = False  # e.g. torch.Tensor
        if made or from_dlpack:
            argument = node.args[0] if node.args else _keyword(node, "name")
            if argument is not None:
                yield Call(_literal(argument, constants), argument)


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in node.keywords if keyword.arg == name), None)


def _literal(node: ast.expr, constants: dict[str, str]) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return constants.get(name)
    return None


def _constants(tree: ast.Module) -> dict[str, str]:
    """Returns the strings of names that the file binds only once, at the top level."""
    bound: dict[str, int] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                bound[name] = bound.get(name, 0) + 1
    found = {}
    for top in tree.body:
        match top:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))) if bound[name] == 1:
                found[name] = text
    return found


def _mentions(tree: ast.Module, name: str) -> bool:
    return any(getattr(node, "attr", getattr(node, "id", "")) == name for node in ast.walk(tree))
