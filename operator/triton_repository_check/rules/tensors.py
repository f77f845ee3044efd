"""Checks of the inputs, outputs and instance groups in config.pbtxt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from triton_repository_check import placeholders
from triton_repository_check.expected import Expected
from triton_repository_check.files import FileKind
from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.needs import product
from triton_repository_check.places import Node
from triton_repository_check.rules.base import Checks, each_model, each_model_expected, error, listed, note, warning
from triton_repository_check.rules.source import may_complete_config
from triton_repository_check.schema import DataType, ModelInstanceGroup

CODES = {
    "TR115": "an input or output has no name, data_type or dims",
    "TR116": "an input or output has an invalid dimension",
    "TR117": "two tensors have the same name",
    "TR118": "reshape changes the number of elements",
    "TR119": "instance_group: the device doesn't exist",
    "TR125": "only TensorRT supports the setting",
    "TR208": "the label file is missing, is a directory, is too short, or isn't plain UTF-8",
}

_SIDES = ("input", "output")
_TENSORRT_ONLY = ("is_shape_tensor", "is_non_linear_format_io")
_COMPLETE = frozenset({"dali", "tensorrt"})
"""Backends that add the data_type and dims of a declared tensor."""
_COMPLETE_NOTHING = frozenset({"ensemble", "onnxruntime", "python", "pytorch"})
"""Backends that don't add them. Others may."""


def declared(_: Repository, model: Model) -> Iterator[Finding]:
    """TR115-TR118, TR125: each tensor needs a unique name, a type and valid dimensions."""
    if model.config is None:
        return
    foreign = () if model.backend == "tensorrt" else _TENSORRT_ONLY
    for side in _SIDES:
        names: set[str] = set()
        for index, tensor in enumerate(getattr(model.config, side)):
            at = model.where.find(side, index)
            yield from _complete(model, side, tensor, at)
            yield from _dims(model, side, tensor, at, foreign)
            if tensor.name and tensor.name in names:
                # Triton returns an output once even if it is declared twice.
                yield (error if side == "input" else note)(
                    model.config_path,
                    "TR117",
                    f"{side} {tensor.name!r} is declared twice",
                    "remove or rename one of them",
                    at.find("name"),
                )
            names.add(tensor.name)
    both = {t.name for t in model.config.input} & {t.name for t in model.config.output}
    for index, tensor in enumerate(model.config.output):
        if tensor.name in both and model.is_ensemble:
            yield error(
                model.config_path,
                "TR117",
                f"{tensor.name!r} is an input and an output of the ensemble, which needs distinct names",
                "rename the output",
                model.where.find("output", index, "name"),
            )


def _complete(model: Model, side: str, tensor: Any, at: Node) -> Iterator[Finding]:
    """TR115: a field is missing, and the backend doesn't add it."""
    if not tensor.name:
        yield error(model.config_path, "TR115", f"an {side} has no name", 'add name: "…"', at)
    elif tensor.data_type == DataType.TYPE_INVALID and not _completed(model):
        level = error if model.backend in _COMPLETE_NOTHING else warning
        remedy = "add e.g. data_type: TYPE_FP32"
        yield level(model.config_path, "TR115", f"{side} {tensor.name!r} has no data_type", remedy, at)
    elif not tensor.dims and not _completed(model):
        level = error if model.backend in _COMPLETE_NOTHING else warning
        remedy = "add dims, e.g. [ 1 ] for one value, [ -1 ] for a variable number of values"
        yield level(model.config_path, "TR115", f"{side} {tensor.name!r} has no dims", remedy, at)


def _completed(model: Model) -> bool:
    """Whether the backend, or model.py, adds missing fields."""
    if model.backend == "python":
        return may_complete_config(model)
    return model.backend in _COMPLETE


def _dims(model: Model, side: str, tensor: Any, at: Node, foreign: Iterable[str]) -> Iterator[Finding]:
    """TR116, TR118, TR125: `foreign` are the fields that the backend doesn't support."""
    for index, size in enumerate(tensor.dims):
        if size == 0 or size < -1:
            yield error(
                model.config_path,
                "TR116",
                f"{side} {tensor.name!r} has an invalid dimension: {size}",
                "use 1 or more, or -1 for a variable dimension; leave out the batch dimension",
                at.find("dims", index),
            )
    if getattr(tensor, "format", 0) and len(tensor.dims) != 3:
        yield error(
            model.config_path,
            "TR116",
            f"input {tensor.name!r} has {len(tensor.dims)} dims, but its format needs three",
            "set three dims, or remove format",
            at.find("format"),
        )
    if tensor.HasField("reshape") and (why := _reshape_fault(tensor, model.config.max_batch_size)):
        yield error(
            model.config_path,
            "TR118",
            f"reshape of {side} {tensor.name!r} from {list(tensor.dims)} to {list(tensor.reshape.shape)} {why}",
            "make the products of the dimensions equal, also before, between and after variable dimensions",
            at.find("reshape"),
        )
    for field in foreign:
        if getattr(tensor, field, False):
            yield error(
                model.config_path,
                "TR125",
                f"{side} {tensor.name!r} sets {field}, which only TensorRT supports",
                f"remove {field}",
                at.find(field),
            )


def _reshape_fault(tensor: Any, max_batch_size: int) -> str:
    """Returns why Triton rejects a reshape (ValidateIOShape in core/model_config_utils.cc), else an empty string."""
    shape = list(tensor.reshape.shape)
    if any(size == 0 or size < -1 for size in shape):
        return "has an invalid dimension"
    if not shape:
        if not max_batch_size:
            return "makes a scalar, which needs max_batch_size above 0"
        return "" if list(tensor.dims) == [1] * len(tensor.dims) else "changes the number of elements"
    return "" if _runs(tensor.dims) == _runs(shape) else "changes the number of elements"


def _runs(sizes: Sequence[int]) -> list[int]:
    """Returns the number of elements before, between and after variable dimensions."""
    runs = [1]
    for size in sizes:
        if size < 0:
            runs.append(1)
        else:
            runs[-1] = product((runs[-1], size))
    return runs


def labels(_: Repository, model: Model) -> Iterator[Finding]:
    """TR208: a label file is missing, isn't plain UTF-8, is too short, or is a directory, which ends the server."""
    if model.config is None:
        return
    for index, tensor in enumerate(model.config.output):
        name = tensor.label_filename
        found = model.labels.get(name)
        if found is not None and found.fault:
            yield warning(f"{model.directory}/{name}", "TR208", found.fault, found.remedy)
        elif found is not None and found.count is not None and found.count < (classes := _classes(tensor.dims)):
            yield warning(
                f"{model.directory}/{name}",
                "TR208",
                f"output {tensor.name!r} has {classes} elements, but only the first {found.count} have a label",
                "add a line for each element, in their order",
            )
        kind = model.named[name].kind if name else None
        if kind in (FileKind.NOTHING, FileKind.FOLDER) and not placeholders.names(name, bare=True):
            yield error(
                model.config_path,
                "TR208",
                f"label_filename names {name!r}, which is a directory"
                if kind is FileKind.FOLDER
                else f"label_filename names {name!r}, which isn't in {model.directory}/",
                "add the file to the directory of config.pbtxt, or remove label_filename",
                model.where.find("output", index, "label_filename"),
            )


def _classes(dims: Sequence[int]) -> int:
    """Returns the number of classes of an output; 0 if it has no fixed one, or isn't one row of classes."""
    sizes = [size for size in dims if size != 1]
    return max(sizes[0], 0) if len(sizes) == 1 else 0


def instances(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR119: an instance group names devices that don't exist, or that its kind doesn't support."""
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
                f"the instance count is {group.count}: Triton uses the default",
                "set count to 1 or more",
                at.find("count"),
            )
        if group.gpus and group.kind in (ModelInstanceGroup.KIND_CPU, ModelInstanceGroup.KIND_MODEL):
            yield error(
                model.config_path,
                "TR119",
                f"{kind} doesn't support gpus",
                "remove gpus, or use KIND_GPU",
                at.find("gpus"),
            )
        elif strange := [gpu for gpu in group.gpus if gpu < 0]:
            yield error(
                model.config_path,
                "TR119",
                f"invalid GPU number: {listed(strange)}",
                "use numbers from 0",
                at.find("gpus"),
            )
        elif group.kind == ModelInstanceGroup.KIND_GPU and expected.gpus == 0:
            # A warning, because a pod may see GPUs without requesting them.
            yield warning(
                model.config_path,
                "TR119",
                "KIND_GPU is set, but the server has no GPU",
                "use KIND_AUTO, which uses a GPU if there is one, or request one in spec.server.resources.limits",
                at.find("kind"),
            )
        elif group.gpus and group.kind == ModelInstanceGroup.KIND_AUTO and expected.gpus == 0:
            yield warning(
                model.config_path,
                "TR119",
                "gpus is set with KIND_AUTO, but the server has no GPU: Triton uses the CPU and rejects gpus",
                "remove gpus",
                at.find("gpus"),
            )
        elif expected.gpus and (beyond := [gpu for gpu in group.gpus if not 0 <= gpu < expected.gpus]):
            yield error(
                model.config_path,
                "TR119",
                f"GPU {listed(beyond)} doesn't exist: the server has {expected.gpus}, numbered from 0",
                "correct gpus, or remove it to use all GPUs",
                at.find("gpus"),
            )


def _profiles(model: Model, group: Any, at: Node) -> Iterator[Finding]:
    """TR125: only TensorRT supports profiles, and a profile is a number."""
    for index, profile in enumerate(group.profile):
        if model.backend != "tensorrt":
            why = f"profile {profile!r} is set, but only TensorRT supports profiles"
        elif not (profile.isascii() and profile.isdecimal()):
            why = f"profile {profile!r} is not a number"
        else:
            continue
        yield error(
            model.config_path, "TR125", why, "remove it, or use the number of a profile", at.find("profile", index)
        )


CHECKS: Checks = (
    ("tensors", each_model(declared)),
    ("labels", each_model(labels)),
    ("instances", each_model_expected(instances)),
)
