"""The ONNX file against config.pbtxt, as the onnxruntime backend compares the two when it loads the model."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import Any

from triton_operator.repository.findings import Finding
from triton_operator.repository.model import Model, Repository
from triton_operator.repository.onnx import Network, Tensor
from triton_operator.repository.rules.base import error, listed, nearest
from triton_operator.repository.schema import type_name

_FILE = "export the model anew, or correct config.pbtxt"


def network(_: Repository, model: Model) -> Iterator[Finding]:
    """TR601-TR606: the file, and each input and output that either side has."""
    for file, net in model.networks.items():
        if isinstance(net, str):
            yield error(file, "TR601", f"no ONNX model: {net}", "put the exported network there")
            continue
        yield from _weights(model, file, net)
        if model.config is None:
            continue
        where = f" in {file.rpartition('/')[2]}"
        yield from _side(model, "input", net.inputs, where)
        yield from _side(model, "output", net.outputs, where)
        inputs = _requested(model)
        for tensor in net.inputs if model.config.input else ():
            if tensor.name not in inputs:
                yield error(
                    model.config_path,
                    "TR603",
                    f"input {tensor.name!r} of {file.rpartition('/')[2]} is missing",
                    f'add input {{ name: "{tensor.name}" data_type: {tensor.data_type or "…"} dims: […] }}',
                    model.where.find("input", 0),
                )


def _requested(model: Model) -> set[str]:
    """All tensors that the server hands to the network: inputs, controls and states of sequences, batch inputs."""
    config = model.config
    names = {t.name for t in config.input}
    names |= {t.name for t in config.sequence_batching.control_input}
    names |= {t.input_name for t in config.sequence_batching.state}
    return names | {name for t in config.batch_input for name in t.target_name}


def _weights(model: Model, file: str, net: Network) -> Iterator[Finding]:
    """TR607: weights in files beside the network, which are easily left behind."""
    version = posixpath.basename(posixpath.dirname(file))
    held = model.folders.get(version, frozenset())
    for name in net.external:
        if posixpath.normpath(name).split("/", 1)[0] not in held:
            yield error(
                file,
                "TR607",
                f"its weights are in {name!r}, which isn't beside it",
                f"add the file to {posixpath.dirname(file)}/, or export the weights into the model",
            )


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
                nearest(tensor.name, by_name) or f"it has: {listed(by_name)}",
                at.find("name"),
            )
            continue
        kind = type_name(tensor.data_type)
        if actual.data_type and kind not in (actual.data_type, "TYPE_INVALID"):
            yield error(
                model.config_path,
                "TR604",
                f"{side} {tensor.name!r} is {kind}, and {actual.data_type}{where}",
                f"set data_type: {actual.data_type}",
                at.find("data_type"),
            )
        if actual.dims is not None and tensor.dims:
            yield from _shape(model, side, tensor, actual.dims, where, index)


def _shape(model: Model, side: str, tensor: Any, actual: tuple[int, ...], where: str, index: int) -> Iterator[Finding]:
    batch = model.config.max_batch_size
    at = model.where.find(side, index, "dims")
    said = tuple(tensor.reshape.shape) if tensor.HasField("reshape") else tuple(tensor.dims)
    if batch > 0 and actual and actual[0] != -1 and len(actual) == len(said) + 1:
        yield error(
            model.config_path,
            "TR606",
            f"{side} {tensor.name!r} has a fixed batch of {actual[0]}{where}, and max_batch_size is {batch}",
            "export the model with a dynamic batch, or set max_batch_size to 0 and put the batch into dims",
            model.where.find("max_batch_size"),
        )
        return
    full = (-1, *said) if batch > 0 else said
    if len(full) != len(actual) or any(a != b and -1 not in (a, b) for a, b in zip(full, actual, strict=True)):
        yield error(
            model.config_path,
            "TR605",
            f"{side} {tensor.name!r} is {_text(full)}{' with the batch' if batch > 0 else ''}, "
            f"and {_text(actual)}{where}",
            f"set dims: {_text(actual[1:] if batch > 0 else actual)}" if len(actual) > (batch > 0) else _FILE,
            at,
        )


def _text(dims: Sequence[int]) -> str:
    return f"[ {', '.join(map(str, dims))} ]" if dims else "[ ]"
