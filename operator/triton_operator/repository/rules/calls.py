"""The tensors that model.py asks for and gives, against config.pbtxt."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from triton_operator.repository.findings import Finding
from triton_operator.repository.model import Model, Repository
from triton_operator.repository.rules.base import error, listed, nearest, note, warning
from triton_operator.repository.rules.source import completes_itself, imports_neighbours, place, trees

_READ = "get_input_tensor_by_name"
_WRITE = ("Tensor",)


@dataclass(frozen=True, slots=True)
class Call:
    """A tensor that the source names."""

    name: str | None
    """None where it is computed."""
    node: ast.expr
    used: bool = False
    """Whether the result is used at once, so that None would raise."""


def names(_: Repository, model: Model) -> Iterator[Finding]:
    """TR305-TR307: names in get_input_tensor_by_name and Tensor that config.pbtxt doesn't declare, and outputs that
    are declared and never made."""
    config = model.config
    if config is None or completes_itself(model):
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
                    f"asks for input {call.name!r}, which config.pbtxt doesn't declare, and so gets None",
                    nearest(call.name, given) or f"declared are: {listed(sorted(given))}",
                    place(call.node),
                )
        # Tensors for other models have those models' names.
        if _mentions(tree, "InferenceRequest"):
            continue
        writes = list(_writes(tree, constants))
        strange = [call for call in writes if call.name is not None and call.name not in made]
        written = {call.name for call in writes}
        lacking = [t for t in config.output if t.name not in written]
        for call in strange:
            # Where all outputs are made, this one may be an intermediate result, or an extra that the backend drops.
            level = (error if all(w.name for w in writes) else warning) if lacking else note
            yield level(
                file,
                "TR306",
                f"makes output {call.name!r}, which config.pbtxt doesn't declare, and which is dropped",
                nearest(str(call.name), made) or f"declared are: {listed(sorted(made))}",
                place(call.node),
            )
        sure = writes and not strange and all(call.name is not None for call in writes)
        if sure and not imports_neighbours(model, file, tree):
            for index, tensor in enumerate(config.output):
                if tensor.name not in {call.name for call in writes}:
                    yield warning(
                        model.config_path,
                        "TR307",
                        f"output {tensor.name!r} is declared, and {file.rpartition('/')[2]} never makes it",
                        "make it in execute, or take it out",
                        model.where.find("output", index, "name"),
                    )


def _reads(tree: ast.Module, constants: dict[str, str]) -> Iterator[Call]:
    used = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) == _READ:
            argument = node.args[1] if len(node.args) > 1 else _keyword(node, "name")
            if argument is not None:
                yield Call(_literal(argument, constants), argument, id(node) in used)


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
    """Names that the whole file binds once, at the top level, to a text."""
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
