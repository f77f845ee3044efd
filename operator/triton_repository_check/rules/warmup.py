"""Checks of warm-up requests and of initial states of sequences, and of their files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triton_repository_check.expected import Expected
from triton_repository_check.files import FileKind
from triton_repository_check.findings import Finding
from triton_repository_check.model import Data, Model, Repository
from triton_repository_check.needs import element_bytes, product
from triton_repository_check.places import Node
from triton_repository_check.rules.base import (
    Checks,
    did_you_mean,
    each_model,
    each_model_expected,
    error,
    instead,
    warning,
)
from triton_repository_check.rules.onnx import possible_batches
from triton_repository_check.schema import DataType, type_name

CODES = {
    "TR701": "warm-up or initial state: the file is missing",
    "TR702": "warm-up or initial state: the file's size differs from the tensor's",
    "TR703": "warm-up: batch_size is above max_batch_size",
    "TR704": "warm-up: inputs differ from those of the model",
    "TR705": "warm-up: the server skips a sample",
}


def warmup(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR701-TR705: a warm-up request, which the server runs before the model is ready, is invalid."""
    if model.config is None or model.is_ensemble:
        return
    for index, sample in enumerate(model.config.model_warmup):
        at = model.where.find("model_warmup", index)
        if sample.batch_size == 0:
            if "batch_size" not in at.fields:  # one that is written is meant
                yield warning(
                    model.config_path,
                    "TR705",
                    "the server skips this warm-up, because it has no batch_size",
                    "add batch_size: 1, or more if the model takes batches",
                    at,
                )
            continue
        yield from _batch(model, sample, at, expected)
        yield from _inputs(model, sample, at)
        for name, tensor in sorted(sample.inputs.items()):
            place = at.find("inputs", name).find("value")
            source = tensor.WhichOneof("input_data_type")
            if source is None:
                yield error(
                    model.config_path,
                    "TR704",
                    f"warm-up has no data for input {name!r}",
                    "add zero_data: true, random_data: true or input_data_file",
                    place,
                )
            elif source == "input_data_file":
                times = sample.batch_size
                yield from _file(model, f"warmup/{tensor.input_data_file}", tensor, times, place, "input_data_file")


def states(_: Repository, model: Model) -> Iterator[Finding]:
    """TR701, TR702: the file with an initial state of a sequence is missing or has the wrong size."""
    if model.config is None:
        return
    for index, state in enumerate(model.config.sequence_batching.state):
        for number, first in enumerate(state.initial_state):
            if first.WhichOneof("state_data") == "data_file":
                at = model.where.find("sequence_batching", 0, "state", index, "initial_state", number)
                yield from _file(model, f"initial_state/{first.data_file}", first, 1, at, "data_file")


def _batch(model: Model, sample: Any, at: Node, expected: Expected) -> Iterator[Finding]:
    """TR703: the sample is larger than the server's batches."""
    written = model.config.max_batch_size
    maximum = max(possible_batches(model, expected.flags)) if model.backend == "onnxruntime" else written
    so = "max_batch_size is" if maximum == written else "the server completes max_batch_size to"
    if sample.batch_size > max(maximum, 1):
        yield error(
            model.config_path,
            "TR703",
            f"the batch_size of the warm-up is {sample.batch_size}, but {so} {maximum}",
            f"lower batch_size to at most {maximum}" if maximum else "set batch_size to 1",
            at.find("batch_size"),
        )


def _inputs(model: Model, sample: Any, at: Node) -> Iterator[Finding]:
    """TR704: the inputs of the sample differ from those of the model."""
    config = model.config
    if not config.input:
        yield from _completed_inputs(model, sample, at)
        return
    declared = {t.name: t for t in config.input}
    others = {t.name for t in config.sequence_batching.control_input}
    for name, tensor in sorted(sample.inputs.items()):
        place = at.find("inputs", name)
        if name not in declared:
            if name not in others:
                # A warning, because Triton passes it to the backend in addition to the inputs.
                yield warning(
                    model.config_path,
                    "TR704",
                    f"warm-up has input {name!r}, which the model doesn't declare",
                    instead(name, declared, "a declared input"),
                    place.find("key"),
                )
            continue
        configured = declared[name]
        if tensor.data_type != configured.data_type:
            yield error(
                model.config_path,
                "TR704",
                f"input {name!r} is {type_name(tensor.data_type)} in the warm-up, "
                f"but the model needs {type_name(configured.data_type)}",
                f"set data_type: {type_name(configured.data_type)}",
                place.find("value").find("data_type"),
            )
        elif not _fits(list(tensor.dims), list(configured.dims)):
            yield error(
                model.config_path,
                "TR704",
                f"input {name!r} is {list(tensor.dims)} in the warm-up, but the model needs {list(configured.dims)}",
                "make the dims equal, with a number for each variable dimension; leave out the batch dimension",
                place.find("value").find("dims"),
            )
    for name, configured in sorted(declared.items()):
        if name not in sample.inputs and not configured.optional:
            yield error(
                model.config_path,
                "TR704",
                f"warm-up has no input {name!r}",
                "add it, or set optional: true for the input",
                at,
            )


def _completed_inputs(model: Model, sample: Any, at: Node) -> Iterator[Finding]:
    """TR704: the sample lacks an input that the backend adds from the ONNX file."""
    for file, net in model.networks.items():
        for tensor in () if isinstance(net, str) or model.config.batch_input else net.inputs:
            if tensor.name not in sample.inputs:
                message = f"warm-up has no input {tensor.name!r}, which {file} has"
                remedy = did_you_mean(tensor.name, sample.inputs) or "add it"
                yield error(model.config_path, "TR704", message, remedy, at)


def _fits(sizes: list[int], dims: list[int]) -> bool:
    return len(sizes) == len(dims) and all(s > 0 and d in (s, -1) for s, d in zip(sizes, dims, strict=True))


def _file(model: Model, path: str, tensor: Any, times: int, at: Node, field: str) -> Iterator[Finding]:
    """TR701, TR702: the file is missing, or its size differs from the tensor's."""
    entry = model.named.get(path)
    if entry is None or entry.kind is FileKind.OUTSIDE:
        return
    data = model.data.get(path) or (Data(entry.size) if entry.kind is FileKind.FILE else None)
    if data is None:
        beside = {name.rpartition("/")[2] for name in model.data}
        yield error(
            model.config_path,
            "TR701",
            f"{field} names {path.partition('/')[2]!r}, but {model.directory}/{path} doesn't exist",
            did_you_mean(path.partition("/")[2], beside)
            or "add the file with the tensor's raw bytes, or use zero_data: true",
            at.find(field),
        )
        return
    # The file contains one sample, which each request of the batch gets.
    elements = product(tensor.dims)
    if tensor.data_type == DataType.TYPE_STRING:
        if data.strings != elements and data.size and path in model.data:
            yield error(
                f"{model.directory}/{path}",
                "TR702",
                f"the file contains {_strings(data)}, but the tensor has {elements} elements",
                "write each string after its length in four bytes, little-endian",
            )
        return
    kind = type_name(tensor.data_type).removeprefix("TYPE_")
    need = elements * element_bytes(kind)
    if data.size < need:
        yield error(
            f"{model.directory}/{path}",
            "TR702",
            f"the file has {data.size} bytes, but {elements} elements of {kind} need {need}",
            "write the tensor's raw bytes in row-major order",
        )
    elif data.size not in (need, need * times):  # Triton reads the start of a longer file
        yield warning(
            f"{model.directory}/{path}",
            "TR702",
            f"the file has {data.size} bytes, but the tensor uses only the first {need}",
            "write only the tensor's raw bytes",
        )


def _strings(data: Data) -> str:
    if data.strings is None:
        return f"{data.size} bytes that are not strings with their lengths"
    return f"{data.strings} string{'' if data.strings == 1 else 's'}"


CHECKS: Checks = (
    ("warm-up", each_model_expected(warmup)),
    ("initial states", each_model(states)),
)
