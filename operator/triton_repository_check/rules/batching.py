"""Checks of batching and queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.rules.base import Checks, each_model, error, instead, listed, note, warning
from triton_repository_check.rules.onnx import completes
from triton_repository_check.schema import DataType, type_name

CODES = {
    "TR107": "dynamic_batching: max_batch_size is 0",
    "TR108": "max_batch_size is below 0, or preferred_batch_size is above max_batch_size",
    "TR110": "an input has a variable size and no allow_ragged_batch",
    "TR111": "allow_ragged_batch: max_batch_size is 0",
    "TR112": "dynamic_batching: priorities and ordering conflict",
    "TR114": "batch_input or batch_output: the tensor isn't declared",
    "TR124": "batch_input or batch_output is invalid",
}

_DELAY = 1
"""ModelQueuePolicy.TimeoutAction.DELAY."""


def batching(_: Repository, model: Model) -> Iterator[Finding]:
    """TR107, TR108: batching has no effect, or exceeds max_batch_size."""
    config = model.config
    if config is None:
        return
    if config.max_batch_size < 0:
        yield error(
            model.config_path,
            "TR108",
            f"max_batch_size is below 0: {config.max_batch_size}",
            "set it to 0 for a model without a batch dimension, else to the largest batch size",
            model.where.find("max_batch_size"),
        )
    completed = _completed(model)
    if config.HasField("dynamic_batching") and config.max_batch_size == 0 and not completed:
        yield warning(
            model.config_path,
            "TR107",
            "dynamic_batching has no effect: max_batch_size is 0",
            "set max_batch_size above 0, and remove the batch dimension from dims",
            model.where.find("dynamic_batching"),
        )
    for path, sizes in _preferred(config):
        for index, size in enumerate(sizes):
            # Triton compares them before the backend completes max_batch_size (ValidateModelConfig in core).
            if size <= 0 or size > config.max_batch_size:
                limit = "below 1" if size <= 0 else f"above max_batch_size {config.max_batch_size}"
                limit += ", which the backend completes only later" if size > 0 and completed else ""
                yield error(
                    model.config_path,
                    "TR108",
                    f"preferred_batch_size {size} is {limit}",
                    "use a number from 1 to max_batch_size, raise max_batch_size, or remove preferred_batch_size",
                    model.where.find(*path, "preferred_batch_size", index),
                )


def _completed(model: Model) -> bool:
    """Whether the backend may set max_batch_size.

    It may without declared inputs, unless config.pbtxt sets it to 0. That of onnxruntime also completes this 0, but
    only if a side isn't declared.
    """
    if model.backend == "onnxruntime":
        return completes(model, None)
    return not model.config.input and "max_batch_size" not in model.where.fields


def _preferred(config: Any) -> Iterator[tuple[tuple[str | int, ...], list[int]]]:
    if config.HasField("dynamic_batching"):
        yield ("dynamic_batching", 0), list(config.dynamic_batching.preferred_batch_size)
    if config.HasField("sequence_batching") and config.sequence_batching.HasField("oldest"):
        yield ("sequence_batching", 0, "oldest", 0), list(config.sequence_batching.oldest.preferred_batch_size)


def ragged(_: Repository, model: Model) -> Iterator[Finding]:
    """TR110, TR111: Triton only batches requests whose variable inputs have the same shape."""
    config = model.config
    if config is None or model.is_ensemble:
        return
    batches = config.HasField("dynamic_batching") and config.max_batch_size > 1
    for index, tensor in enumerate(config.input):
        if tensor.allow_ragged_batch and not config.max_batch_size and not _completed(model):
            yield warning(
                model.config_path,
                "TR111",
                f"allow_ragged_batch of {tensor.name!r} has no effect: max_batch_size is 0",
                "set max_batch_size above 0, or remove allow_ragged_batch",
                model.where.find("input", index, "allow_ragged_batch"),
            )
        if not batches or -1 not in tensor.dims or tensor.allow_ragged_batch or tensor.HasField("reshape"):
            continue
        encoded = tensor.data_type == DataType.TYPE_UINT8 and list(tensor.dims) == [-1]
        level = warning if encoded else note
        yield level(
            model.config_path,
            "TR110",
            f"Triton only batches requests if their input {tensor.name!r} has the same shape, but its dims are variable"
            + ("; encoded files rarely have the same length" if encoded else ""),
            "use TYPE_STRING with dims: [ 1 ] for encoded files, or set allow_ragged_batch: true"
            if encoded
            else "pad the input to a few sizes in clients, or set allow_ragged_batch: true if the model supports it",
            model.where.find("input", index, "dims"),
        )


def queues(_: Repository, model: Model) -> Iterator[Finding]:
    """TR112: priorities and ordering of dynamic_batching conflict."""
    config = model.config
    if config is None or not config.HasField("dynamic_batching"):
        return
    batcher, at = config.dynamic_batching, model.where.find("dynamic_batching")
    levels, usual = batcher.priority_levels, batcher.default_priority_level
    if levels and not 1 <= usual <= levels:
        yield error(
            model.config_path,
            "TR112",
            f"default_priority_level is {usual}, but priority_levels is {levels}",
            f"set default_priority_level to a number from 1 to {levels}",
            at.find("default_priority_level" if usual else "priority_levels"),
        )
    for level in sorted(batcher.priority_queue_policy):
        if levels and not 1 <= level <= levels:
            yield error(
                model.config_path,
                "TR112",
                f"priority_queue_policy is set for level {level}, but priority_levels is {levels}",
                f"use levels from 1 to {levels}",
                at.find("priority_queue_policy", str(level)),
            )
    if not batcher.preserve_ordering:
        return
    if levels > 1:
        yield error(
            model.config_path,
            "TR112",
            f"preserve_ordering can't be used with {levels} priority_levels, which change the order",
            "remove preserve_ordering or priority_levels",
            at.find("preserve_ordering"),
        )
    policies = [(batcher.default_queue_policy, at.find("default_queue_policy"))]
    policies += [(p, at.find("priority_queue_policy", str(n))) for n, p in batcher.priority_queue_policy.items()]
    for policy, where in policies:
        if policy.default_timeout_microseconds and policy.timeout_action == _DELAY:
            yield error(
                model.config_path,
                "TR112",
                "preserve_ordering can't be used with timeout_action DELAY, which changes the order",
                "use REJECT, or remove preserve_ordering",
                where.find("timeout_action"),
            )


def batch_tensors(_: Repository, model: Model) -> Iterator[Finding]:
    """TR114, TR124: batch_input or batch_output names undeclared tensors, or is invalid."""
    config = model.config
    if config is None:
        return
    inputs, outputs = (dict.fromkeys(sorted(t.name for t in side)) for side in (config.input, config.output))
    for field, part, tensors in (
        ("batch_input", "source_input", inputs),
        ("batch_output", "source_input", inputs),
        ("batch_output", "target_name", outputs),
    ):
        for index, entry in enumerate(getattr(config, field)):
            for place, name in enumerate(getattr(entry, part)):
                if name not in tensors:
                    yield error(
                        model.config_path,
                        "TR114",
                        f"{part} of {field} names {name!r}, which isn't declared",
                        instead(name, tensors, "a declared tensor"),
                        model.where.find(field, index, part, place),
                    )
    for field in ("batch_input", "batch_output"):
        for index, entry in enumerate(getattr(config, field)):
            at = model.where.find(field, index)
            if len(entry.source_input) != 1:
                message = f"{field} has {len(entry.source_input)} source_input, but each kind needs exactly one"
                yield error(model.config_path, "TR124", message, "set one source_input", at.find("source_input"))
            if field == "batch_input" and entry.data_type not in (DataType.TYPE_INT32, DataType.TYPE_FP32):
                message = f"batch_input has data_type {type_name(entry.data_type)}"
                remedy = "set data_type to TYPE_INT32 or TYPE_FP32"
                yield error(model.config_path, "TR124", message, remedy, at.find("data_type"))
            twice = [name for name, times in Counter(entry.target_name).items() if times > 1]
            if field == "batch_output" and twice:
                message = f"batch_output names {listed(twice)} twice"
                yield error(model.config_path, "TR124", message, "name each output once", at.find("target_name"))


CHECKS: Checks = (
    ("batching", each_model(batching)),
    ("ragged batches", each_model(ragged)),
    ("queues", each_model(queues)),
    ("batch tensors", each_model(batch_tensors)),
)
