"""How requests are gathered: batches, queues, sequences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from triton_operator.repository.findings import Finding
from triton_operator.repository.model import Model, Repository
from triton_operator.repository.rules.base import error, listed, nearest, note, warning
from triton_operator.repository.schema import DataType, ModelConfig

Control = ModelConfig.DESCRIPTOR.fields_by_name["sequence_batching"].message_type.nested_types_by_name["Control"]
"""The descriptor of a control tensor of sequences."""

_DELAY = 1
"""ModelQueuePolicy.TimeoutAction.DELAY."""


def batching(_: Repository, model: Model) -> Iterator[Finding]:
    """TR107, TR108: batching that batches nothing, or more than it may."""
    config = model.config
    if config is None:
        return
    if config.max_batch_size < 0:
        yield error(
            model.config_path,
            "TR108",
            f"max_batch_size is {config.max_batch_size}",
            "set it to 0 for a model without a batch dimension, else to the largest batch",
            model.where.find("max_batch_size"),
        )
    # Without declared inputs a backend may complete max_batch_size; a zero that was written stays.
    completed = not config.input and "max_batch_size" not in model.where.fields
    if config.HasField("dynamic_batching") and config.max_batch_size == 0 and not completed:
        yield warning(
            model.config_path,
            "TR107",
            "dynamic_batching has no effect: max_batch_size is 0",
            "set max_batch_size above 0, and take the batch dimension out of dims",
            model.where.find("dynamic_batching"),
        )
    for path, sizes in _preferred(config):
        for index, size in enumerate(sizes):
            if size <= 0 or (size > config.max_batch_size and not completed):
                limit = "not positive" if size <= 0 else f"above max_batch_size {config.max_batch_size}"
                yield error(
                    model.config_path,
                    "TR108",
                    f"preferred_batch_size {size} is {limit}",
                    "raise max_batch_size, or leave preferred_batch_size out",
                    model.where.find(*path, "preferred_batch_size", index),
                )


def _preferred(config: Any) -> Iterator[tuple[tuple[str | int, ...], list[int]]]:
    if config.HasField("dynamic_batching"):
        yield ("dynamic_batching", 0), list(config.dynamic_batching.preferred_batch_size)
    if config.HasField("sequence_batching") and config.sequence_batching.HasField("oldest"):
        yield ("sequence_batching", 0, "oldest", 0), list(config.sequence_batching.oldest.preferred_batch_size)


def ragged(_: Repository, model: Model) -> Iterator[Finding]:
    """TR110, TR111: inputs of variable size, which are only batched with those of the very same size."""
    config = model.config
    if config is None or model.is_ensemble:
        return
    for index, tensor in enumerate(config.input):
        if tensor.allow_ragged_batch and not config.max_batch_size:
            yield warning(
                model.config_path,
                "TR111",
                f"allow_ragged_batch of {tensor.name!r} has no effect: max_batch_size is 0",
                "set max_batch_size above 0, or take allow_ragged_batch out",
                model.where.find("input", index, "allow_ragged_batch"),
            )
        variable = -1 in tensor.dims and not tensor.allow_ragged_batch and not tensor.HasField("reshape")
        if not variable or not config.HasField("dynamic_batching") or config.max_batch_size <= 1:
            continue
        encoded = tensor.data_type == DataType.TYPE_UINT8 and list(tensor.dims) == [-1]
        level = warning if encoded else note
        yield level(
            model.config_path,
            "TR110",
            f"requests are batched only where their {tensor.name!r} has the same shape, which dims leave open"
            + ("; encoded files hardly ever have the same length" if encoded else ""),
            "use TYPE_STRING with dims: [ 1 ] for encoded files, or set allow_ragged_batch: true"
            if encoded
            else "let clients pad to a few sizes, or set allow_ragged_batch: true where the model can take it",
            model.where.find("input", index, "dims"),
        )


def queues(_: Repository, model: Model) -> Iterator[Finding]:
    """TR112: priorities and orders that contradict one another."""
    config = model.config
    if config is None or not config.HasField("dynamic_batching"):
        return
    batcher, at = config.dynamic_batching, model.where.find("dynamic_batching")
    levels, usual = batcher.priority_levels, batcher.default_priority_level
    if levels and not 1 <= usual <= levels:
        yield error(
            model.config_path,
            "TR112",
            f"default_priority_level is {usual}, and priority_levels {levels}",
            f"set default_priority_level to a number from 1 to {levels}",
            at.find("default_priority_level" if usual else "priority_levels"),
        )
    for level in sorted(batcher.priority_queue_policy):
        if levels and not 1 <= level <= levels:
            yield error(
                model.config_path,
                "TR112",
                f"priority_queue_policy is set for level {level}, and priority_levels is {levels}",
                f"use levels from 1 to {levels}",
                at.find("priority_queue_policy", str(level)),
            )
    if not batcher.preserve_ordering:
        return
    if levels > 1:
        yield error(
            model.config_path,
            "TR112",
            f"preserve_ordering with {levels} priority_levels: an order can't be kept and jumped",
            "take one of the two out",
            at.find("preserve_ordering"),
        )
    policy = batcher.default_queue_policy
    if policy.default_timeout_microseconds and policy.timeout_action == _DELAY:
        yield error(
            model.config_path,
            "TR112",
            "preserve_ordering with timeout_action DELAY: a delayed request loses its place",
            "use REJECT, or take preserve_ordering out",
            at.find("default_queue_policy").find("timeout_action"),
        )


def sequences(_: Repository, model: Model) -> Iterator[Finding]:
    """TR113: what the batcher of sequences can't work with."""
    config = model.config
    if config is None or not config.HasField("sequence_batching"):
        return
    batcher, at = config.sequence_batching, model.where.find("sequence_batching")
    kinds = Counter(control.kind for tensor in batcher.control_input for control in tensor.control)
    names = Control.enum_types_by_name["Kind"].values_by_number
    for kind in sorted(kind for kind, times in kinds.items() if times > 1):
        yield error(
            model.config_path,
            "TR113",
            f"{names[kind].name} is given by {kinds[kind]} control inputs",
            "keep one",
            at.find("control_input"),
        )
    declared = {tensor.name for tensor in config.input}
    for index, tensor in enumerate(batcher.control_input):
        if tensor.name in declared:
            yield error(
                model.config_path,
                "TR113",
                f"{tensor.name!r} is a control of the sequence and an input of the model",
                "declare it in one of the two places: a control comes from the server, not with the request",
                at.find("control_input", index).find("name"),
            )
    if batcher.HasField("direct") and not 0 <= batcher.direct.minimum_slot_utilization <= 1:
        yield error(
            model.config_path,
            "TR113",
            f"minimum_slot_utilization is {batcher.direct.minimum_slot_utilization:g}",
            "use a number from 0 to 1",
            at.find("direct").find("minimum_slot_utilization"),
        )


def batch_tensors(_: Repository, model: Model) -> Iterator[Finding]:
    """TR114: batch_input and batch_output that refer to tensors which aren't declared."""
    config = model.config
    if config is None:
        return
    inputs, outputs = (dict.fromkeys(sorted(t.name for t in side)) for side in (config.input, config.output))
    for field, part, known in (
        ("batch_input", "source_input", inputs),
        ("batch_output", "source_input", inputs),
        ("batch_output", "target_name", outputs),
    ):
        for index, entry in enumerate(getattr(config, field)):
            for place, name in enumerate(getattr(entry, part)):
                if name not in known:
                    yield error(
                        model.config_path,
                        "TR114",
                        f"{part} of {field} names {name!r}, which isn't declared",
                        nearest(name, known) or f"declared are: {listed(known)}",
                        model.where.find(field, index, part, place),
                    )
