"""The inputs and outputs that one config.pbtxt declares, and the instances that compute them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from triton_operator.repository.files import Kind
from triton_operator.repository.findings import Finding
from triton_operator.repository.model import Model, Repository
from triton_operator.repository.needs import product
from triton_operator.repository.places import Node
from triton_operator.repository.rules.base import Expected, error, listed, note, warning
from triton_operator.repository.schema import DataType, ModelInstanceGroup

_SIDES = ("input", "output")


def declared(_: Repository, model: Model) -> Iterator[Finding]:
    """TR115-TR118: each tensor has a name of its own, a type and dimensions, and a reshape keeps its elements."""
    if model.config is None:
        return
    for side in _SIDES:
        seen: set[str] = set()
        for index, tensor in enumerate(getattr(model.config, side)):
            at = model.where.find(side, index)
            yield from _complete(model, side, tensor, at)
            yield from _dims(model, side, tensor, at)
            if tensor.name and tensor.name in seen:
                # Triton answers an output that is declared twice once.
                yield (error if side == "input" else note)(
                    model.config_path,
                    "TR117",
                    f"{side} {tensor.name!r} is declared twice",
                    "take one out, or give it another name",
                    at.find("name"),
                )
            seen.add(tensor.name)
    both = {t.name for t in model.config.input} & {t.name for t in model.config.output}
    for index, tensor in enumerate(model.config.output):
        if tensor.name in both and model.is_ensemble:
            yield error(
                model.config_path,
                "TR117",
                f"{tensor.name!r} is an input and an output of the ensemble, whose tensors share their names",
                "give the output another name",
                model.where.find("output", index, "name"),
            )


def _complete(model: Model, side: str, tensor: Any, at: Node) -> Iterator[Finding]:
    if not tensor.name:
        yield error(model.config_path, "TR115", f"an {side} without a name", 'add name: "…"', at)
    elif tensor.data_type == DataType.TYPE_INVALID:
        yield error(
            model.config_path,
            "TR115",
            f"{side} {tensor.name!r} has no data_type",
            "add e.g. data_type: TYPE_FP32",
            at,
        )
    elif not tensor.dims:
        yield error(
            model.config_path,
            "TR115",
            f"{side} {tensor.name!r} has no dims",
            "add dims, e.g. [ 1 ] for a single value, [ -1 ] for a variable number of them",
            at,
        )


def _dims(model: Model, side: str, tensor: Any, at: Node) -> Iterator[Finding]:
    for index, size in enumerate(tensor.dims):
        if size == 0 or size < -1:
            yield error(
                model.config_path,
                "TR116",
                f"{side} {tensor.name!r} has a dimension of {size}",
                "dimensions are 1 or more, or -1 for a variable one; the batch dimension is left out",
                at.find("dims", index),
            )
    if getattr(tensor, "format", 0) and len(tensor.dims) != 3:
        yield error(
            model.config_path,
            "TR116",
            f"input {tensor.name!r} has a format of three dimensions, and {len(tensor.dims)} dims",
            "give three dims, or leave format out",
            at.find("format"),
        )
    if tensor.HasField("reshape") and not _same_elements(tensor.dims, tensor.reshape.shape):
        yield error(
            model.config_path,
            "TR118",
            f"reshape of {side} {tensor.name!r} turns {list(tensor.dims)} into {list(tensor.reshape.shape)}, "
            "which has another number of elements",
            "make the products equal; a variable dimension stays one",
            at.find("reshape"),
        )


def _same_elements(dims: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a tensor of `dims` fits `shape`: what is fixed multiplies to the same, and as many are variable."""
    variable = [sum(size < 0 for size in sizes) for sizes in (dims, shape)]
    return variable[0] == variable[1] and (
        variable[0] > 0 or product(size for size in dims if size >= 0) == product(size for size in shape if size >= 0)
    )


def labels(_: Repository, model: Model) -> Iterator[Finding]:
    """TR208: a label file that isn't there."""
    if model.config is None:
        return
    for index, tensor in enumerate(model.config.output):
        name = tensor.label_filename
        if name and model.named[name].kind is Kind.NOTHING:
            yield error(
                model.config_path,
                "TR208",
                f"label_filename names {name!r}, which isn't in {model.directory}/",
                "add the file beside config.pbtxt, or take label_filename out",
                model.where.find("output", index, "label_filename"),
            )


def instances(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR119: instances on devices that aren't there, or that their kind doesn't have."""
    if model.config is None or model.is_ensemble:
        return
    for index, group in enumerate(model.config.instance_group):
        at = model.where.find("instance_group", index)
        kind = ModelInstanceGroup.Kind.Name(group.kind)
        if group.count < 0:
            yield error(
                model.config_path,
                "TR119",
                f"a count of {group.count} instances",
                "set count to 1 or more",
                at.find("count"),
            )
        if group.gpus and group.kind in (ModelInstanceGroup.KIND_CPU, ModelInstanceGroup.KIND_MODEL):
            yield error(
                model.config_path,
                "TR119",
                f"{kind} with gpus",
                "take gpus out, or use KIND_GPU",
                at.find("gpus"),
            )
        elif group.kind == ModelInstanceGroup.KIND_GPU and expected.gpus == 0:
            # A warning: a pod may see devices without asking Kubernetes for them.
            yield warning(
                model.config_path,
                "TR119",
                "KIND_GPU, and the server is given no GPU",
                "use KIND_AUTO, which takes a GPU where there is one, or ask for one in spec.server.resources.limits",
                at.find("kind"),
            )
        elif expected.gpus and (beyond := [gpu for gpu in group.gpus if not 0 <= gpu < expected.gpus]):
            yield error(
                model.config_path,
                "TR119",
                f"GPU {listed(beyond)}, and the server is given {expected.gpus}, counted from 0",
                "correct gpus, or leave it out for all of them",
                at.find("gpus"),
            )
