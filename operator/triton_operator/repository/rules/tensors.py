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
_TENSORRT_ONLY = ("is_shape_tensor", "is_non_linear_format_io")


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
    if tensor.HasField("reshape") and (why := _reshape_fault(tensor, model.config.max_batch_size)):
        yield error(
            model.config_path,
            "TR118",
            f"reshape of {side} {tensor.name!r} turns {list(tensor.dims)} into {list(tensor.reshape.shape)}, {why}",
            "make the products equal, also between variable dimensions, which stay in their order",
            at.find("reshape"),
        )
    if model.backend != "tensorrt":
        for field in _TENSORRT_ONLY:
            if getattr(tensor, field, False):
                yield error(
                    model.config_path,
                    "TR125",
                    f"{field} of {side} {tensor.name!r}, which TensorRT alone has",
                    f"take {field} out",
                    at.find(field),
                )


def _reshape_fault(tensor: Any, max_batch_size: int) -> str:
    """Why Triton refuses a reshape (ValidateIOShape in core/model_config_utils.cc); empty where it doesn't."""
    shape = list(tensor.reshape.shape)
    if any(size == 0 or size < -1 for size in shape):
        return "which has an invalid dimension"
    if not shape:
        if not max_batch_size:
            return "and a model without batches takes no scalar"
        return "" if list(tensor.dims) == [1] * len(tensor.dims) else "which has another number of elements"
    return "" if _runs(tensor.dims) == _runs(shape) else "which has another number of elements"


def _runs(sizes: Sequence[int]) -> list[int]:
    """How many elements there are before, between and after variable dimensions."""
    runs = [1]
    for size in sizes:
        if size < 0:
            runs.append(1)
        else:
            runs[-1] = product((runs[-1], size))
    return runs


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
        yield from _profiles(model, group, at)
        kind = ModelInstanceGroup.Kind.Name(group.kind)
        if group.count < 0:
            yield warning(
                model.config_path,
                "TR119",
                f"a count of {group.count} instances, which Triton takes for the usual one",
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
        elif strange := [gpu for gpu in group.gpus if gpu < 0]:
            yield error(
                model.config_path, "TR119", f"GPU {listed(strange)}", "GPUs are counted from 0", at.find("gpus")
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
        elif group.gpus and group.kind == ModelInstanceGroup.KIND_AUTO and expected.gpus == 0:
            yield warning(
                model.config_path,
                "TR119",
                "gpus of KIND_AUTO, and the server is given none: Triton then takes the CPU, and refuses gpus with it",
                "take gpus out",
                at.find("gpus"),
            )
        elif expected.gpus and (beyond := [gpu for gpu in group.gpus if not 0 <= gpu < expected.gpus]):
            yield error(
                model.config_path,
                "TR119",
                f"GPU {listed(beyond)}, and the server is given {expected.gpus}, counted from 0",
                "correct gpus, or leave it out for all of them",
                at.find("gpus"),
            )


def _profiles(model: Model, group: Any, at: Node) -> Iterator[Finding]:
    """TR125: profiles, which TensorRT alone has, and which are numbers."""
    for index, profile in enumerate(group.profile):
        if model.backend != "tensorrt":
            why = f"profile {profile!r}, which TensorRT alone has"
        elif not (profile.isascii() and profile.isdecimal()):
            why = f"profile {profile!r}, which is no number"
        else:
            continue
        yield error(
            model.config_path, "TR125", why, "take it out, or use the number of a profile", at.find("profile", index)
        )
