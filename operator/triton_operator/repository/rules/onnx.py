"""Checks of ONNX files against config.pbtxt, like those of the onnxruntime backend when it loads the model."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import Any

from triton_operator.repository.files import FileKind
from triton_operator.repository.findings import Finding
from triton_operator.repository.model import Model, Repository
from triton_operator.repository.onnx import Network, Tensor
from triton_operator.repository.rules.base import did_you_mean, error, listed, warning
from triton_operator.repository.schema import type_name

_FILE = "export the model again, or correct config.pbtxt"


def network(_: Repository, model: Model) -> Iterator[Finding]:
    """TR601-TR609: the ONNX file is invalid, or its inputs and outputs differ from config.pbtxt."""
    for file, net in model.networks.items():
        if isinstance(net, str):
            yield error(file, "TR601", f"not an ONNX model: {net}", "replace it with the exported ONNX model")
            continue
        yield from _weights(model, file, net)
        yield from _not_tensors(file, net)
        if model.config is None:
            continue
        where = f" in {file.rpartition('/')[2]}"
        yield from _side(model, "input", (*net.inputs, *net.defaults), where)
        yield from _side(model, "output", net.outputs, where)
        yield from _optional(model, net, where)
        inputs = _requested(model)
        for tensor in net.inputs if model.config.input else ():
            if tensor.name not in inputs:
                yield error(
                    model.config_path,
                    "TR603",
                    f"input {tensor.name!r} of {file.rpartition('/')[2]} isn't declared",
                    f'add input {{ name: "{tensor.name}" data_type: {tensor.data_type or "…"} dims: […] }}',
                    model.where.find("input", 0),
                )


def _requested(model: Model) -> set[str]:
    """Returns all tensors that the server passes to the network: inputs, sequence controls and states, batch inputs."""
    config = model.config
    names = {t.name for t in config.input}
    names |= {t.name for t in config.sequence_batching.control_input}
    names |= {t.input_name for t in config.sequence_batching.state}
    return names | {name for t in config.batch_input for name in t.target_name}


def _weights(model: Model, file: str, net: Network) -> Iterator[Finding]:
    """TR607: a file with external weights is missing."""
    for name in net.external:
        entry = model.named.get(posixpath.normpath(posixpath.join(posixpath.dirname(file), name)).partition("/")[2])
        if entry is None or entry.kind is not FileKind.NOTHING:
            continue
        yield error(
            file,
            "TR607",
            f"the file with its weights, {name!r}, doesn't exist",
            f"add the file to {posixpath.dirname(file)}/, or export the model with its weights in one file",
        )


def _not_tensors(file: str, net: Network) -> Iterator[Finding]:
    """TR609: an input or output is not a tensor, so that the backend rejects the file."""
    for side, tensors in (("input", net.inputs), ("output", net.outputs)):
        for tensor in tensors:
            if not tensor.is_tensor:
                yield error(
                    file,
                    "TR609",
                    f"{side} {tensor.name!r} is a sequence, a map or an optional, but Triton only supports tensors",
                    "export the model with tensors, e.g. with zipmap=False in skl2onnx",
                )


def _optional(model: Model, net: Network, where: str) -> Iterator[Finding]:
    """TR608: an optional input needs a default value in the file and max_batch_size 0."""
    given = {tensor.name for tensor in net.defaults}
    for index, tensor in enumerate(model.config.input):
        if not tensor.optional:
            continue
        at = model.where.find("input", index, "optional")
        if model.config.max_batch_size > 0:
            message = (
                f"input {tensor.name!r} can't be optional, because max_batch_size is {model.config.max_batch_size}"
            )
            remedy = "set max_batch_size to 0, or remove optional"
        elif tensor.name not in given and tensor.name in {t.name for t in net.inputs}:
            message = f"input {tensor.name!r} can't be optional, because it has no default value{where}"
            remedy = "remove optional, or export the model with an initializer for this input"
        else:
            continue
        yield error(model.config_path, "TR608", message, remedy, at)


def _side(model: Model, side: str, known: Sequence[Tensor], where: str) -> Iterator[Finding]:
    by_name = {tensor.name: tensor for tensor in known}
    for index, tensor in enumerate(getattr(model.config, side)):
        at = model.where.find(side, index)
        actual = by_name.get(tensor.name)
        if actual is None:
            yield error(
                model.config_path,
                "TR602",
                f"there is no {side} {tensor.name!r}{where}",
                did_you_mean(tensor.name, by_name) or f"use an existing {side}: {listed(by_name)}",
                at.find("name"),
            )
            continue
        kind = type_name(tensor.data_type)
        if actual.data_type and kind not in (actual.data_type, "TYPE_INVALID"):
            yield error(
                model.config_path,
                "TR604",
                f"{side} {tensor.name!r} is {kind}, but {actual.data_type}{where}",
                f"set data_type: {actual.data_type}",
                at.find("data_type"),
            )
        batched = side == "output" and any(tensor.name in t.target_name for t in model.config.batch_output)
        if actual.dims is not None and tensor.dims and not batched:
            yield from _shape(model, side, tensor, actual.dims, where, index)


def _shape(model: Model, side: str, tensor: Any, actual: tuple[int, ...], where: str, index: int) -> Iterator[Finding]:
    """TR605, TR606: the shape differs, or the batch size is fixed.

    Follows CompareDimsSupported in onnxruntime_utils.cc: a fixed dimension in the file must be the same in
    config.pbtxt. A variable dimension of an output in the file must be variable in config.pbtxt.
    """
    batch = model.config.max_batch_size
    at = model.where.find(side, index, "dims")
    declared = tuple(tensor.reshape.shape) if tensor.HasField("reshape") else tuple(tensor.dims)
    name = f"{side} {tensor.name!r}"
    if not actual:
        if any(size != 1 for size in declared):
            yield error(model.config_path, "TR605", f"{name} is {_text(declared)}, but a single value{where}",
                        "set dims: [ 1 ]", at)  # fmt: skip
        return
    if side == "input" and tensor.allow_ragged_batch:
        if actual != (-1,):
            yield error(model.config_path, "TR605", f"ragged {name} is {_text(actual)}{where}, but must be [ -1 ]",
                        "export the model with one dimension for the concatenated inputs, or remove allow_ragged_batch",
                        at)  # fmt: skip
        return
    if batch > 0 and actual[0] != -1 and len(actual) == len(declared) + 1:
        yield error(
            model.config_path,
            "TR606",
            f"{name} has a fixed batch size of {actual[0]}{where}, but max_batch_size is {batch}",
            "export the model with a dynamic batch size, or set max_batch_size to 0 and add the batch size to dims",
            model.where.find("max_batch_size"),
        )
        return
    full = (-1, *declared) if batch > 0 else declared
    sizes = list(zip(full, actual, strict=False))
    if len(full) != len(actual) or any(a != b for a, b in sizes if b != -1):
        yield error(
            model.config_path,
            "TR605",
            f"{name} is {_text(full)}{' with the batch' if batch > 0 else ''}, but {_text(actual)}{where}",
            f"set dims: {_text(actual[1:] if batch > 0 else actual)}" if len(actual) > (batch > 0) else _FILE,
            at,
        )
    elif side == "output" and any(a != b for a, b in sizes):
        # A warning, because ONNX Runtime may infer the size although the file doesn't declare it.
        yield warning(
            model.config_path,
            "TR605",
            f"{name} is {_text(full)}{' with the batch' if batch > 0 else ''}, but variable{where}: {_text(actual)}",
            f"set dims: {_text(actual[1:] if batch > 0 else actual)}",
            at,
        )


def _text(dims: Sequence[int]) -> str:
    return f"[ {', '.join(map(str, dims))} ]" if dims else "[ ]"
