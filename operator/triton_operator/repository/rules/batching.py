"""Checks of batching, queues and sequences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from triton_operator.repository.findings import Finding
from triton_operator.repository.model import Model, Repository
from triton_operator.repository.places import Node
from triton_operator.repository.rules.base import did_you_mean, error, listed, note, warning
from triton_operator.repository.schema import DataType, ModelConfig, type_name

Control = ModelConfig.DESCRIPTOR.fields_by_name["sequence_batching"].message_type.nested_types_by_name["Control"]
"""The descriptor of a control tensor of sequences."""

_FALSE_TRUE = ("int32_false_true", "fp32_false_true", "bool_false_true")
_CORRID = Control.enum_types_by_name["Kind"].values_by_name["CONTROL_SEQUENCE_CORRID"].number
_CORRID_TYPES = (
    DataType.TYPE_UINT64,
    DataType.TYPE_INT64,
    DataType.TYPE_UINT32,
    DataType.TYPE_INT32,
    DataType.TYPE_STRING,
)
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
    # Without declared inputs a backend may set max_batch_size, unless config.pbtxt sets it to 0.
    completed = not config.input and "max_batch_size" not in model.where.fields
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
            if size <= 0 or (size > config.max_batch_size and not completed):
                limit = "below 1" if size <= 0 else f"above max_batch_size {config.max_batch_size}"
                yield error(
                    model.config_path,
                    "TR108",
                    f"preferred_batch_size {size} is {limit}",
                    "use a number from 1 to max_batch_size, raise max_batch_size, or remove preferred_batch_size",
                    model.where.find(*path, "preferred_batch_size", index),
                )


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
    for index, tensor in enumerate(config.input):
        if tensor.allow_ragged_batch and not config.max_batch_size:
            yield warning(
                model.config_path,
                "TR111",
                f"allow_ragged_batch of {tensor.name!r} has no effect: max_batch_size is 0",
                "set max_batch_size above 0, or remove allow_ragged_batch",
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


def sequences(_: Repository, model: Model) -> Iterator[Finding]:
    """TR113: the controls or states of sequence_batching are invalid."""
    config = model.config
    if config is None or not config.HasField("sequence_batching"):
        return
    batcher, at = config.sequence_batching, model.where.find("sequence_batching")
    names = Control.enum_types_by_name["Kind"].values_by_number
    kinds = Counter(control.kind for tensor in batcher.control_input for control in tensor.control)
    tensors = Counter(tensor.name for tensor in batcher.control_input)
    for kind in sorted(kind for kind, times in kinds.items() if times > 1):
        yield error(
            model.config_path,
            "TR113",
            f"{kinds[kind]} control inputs have {names[kind].name}",
            "keep only one",
            at.find("control_input"),
        )
    for index, tensor in enumerate(batcher.control_input):
        place = at.find("control_input", index)
        if not tensor.name or tensors[tensor.name] > 1:
            yield error(
                model.config_path,
                "TR113",
                f"{tensors[tensor.name]} control inputs have the name {tensor.name!r}"
                if tensor.name
                else "a control input has no name",
                "give each control input a unique name",
                place.find("name"),
            )
        for number, control in enumerate(tensor.control):
            if why := _control_fault(control):
                yield error(
                    model.config_path,
                    "TR113",
                    f"{names[control.kind].name} of {tensor.name!r} {why[0]}",
                    why[1],
                    place.find("control", number),
                )
    if "TRITON_BATCH_STRATEGY_PATH" in config.parameters:
        yield error(
            model.config_path,
            "TR113",
            "TRITON_BATCH_STRATEGY_PATH can't be used with sequence_batching, which has its own strategies",
            "remove the parameter",
            model.where.find("parameters", "TRITON_BATCH_STRATEGY_PATH"),
        )
    yield from _states(model, batcher, at)
    declared = {tensor.name for tensor in config.input}
    for index, tensor in enumerate(batcher.control_input):
        if tensor.name in declared:
            yield warning(
                model.config_path,
                "TR113",
                f"{tensor.name!r} is both a control_input and an input of the model",
                "remove one of them: the server sets a control_input, the request sets an input",
                at.find("control_input", index).find("name"),
            )
    slots = batcher.direct.minimum_slot_utilization if batcher.HasField("direct") else 0
    if slots < 0 or slots > 1:
        yield error(
            model.config_path,
            "TR113",
            f"minimum_slot_utilization is not between 0 and 1: {batcher.direct.minimum_slot_utilization:g}",
            "use a number from 0 to 1",
            at.find("direct").find("minimum_slot_utilization"),
        )


def _control_fault(control: Any) -> tuple[str, str] | None:
    """Returns what is wrong with a control, and what to do; None if it is valid.

    Follows GetBooleanSequenceControlProperties and GetTypedSequenceControlProperties in core/model_config_utils.cc.
    """
    given = {name: list(getattr(control, name)) for name in _FALSE_TRUE if getattr(control, name)}
    if control.kind == _CORRID:
        if given:
            return f"has {next(iter(given))}, but its value is the sequence's id", "set only data_type"
        if control.data_type not in _CORRID_TYPES:
            allowed = ", ".join(map(type_name, _CORRID_TYPES))
            return f"has data_type {type_name(control.data_type)}", f"set data_type to one of {allowed}"
        return None
    if len(given) != 1:
        return (
            f"sets {listed(given)} of {listed(_FALSE_TRUE)}",
            "set exactly one of them, e.g. int32_false_true: [ 0, 1 ]",
        )
    name, values = next(iter(given.items()))
    if len(values) != 2:
        return f"has {len(values)} values in {name}", "set two values: for false and for true"
    return None


def _states(model: Model, batcher: Any, at: Node) -> Iterator[Finding]:
    """TR113: an implicit state is invalid (sequence_batch_scheduler.cc in core)."""
    times = Counter(state.input_name for state in batcher.state if state.initial_state)
    for index, state in enumerate(batcher.state):
        place = at.find("state", index)
        twice = times[state.input_name] > 1
        faults = [f"{times[state.input_name]} states with initial_state have this input_name"] if twice else []
        if len(state.initial_state) > 1:
            faults.append(f"it has {len(state.initial_state)} initial states, but at most one is allowed")
        for first in state.initial_state[:1]:
            if not first.name:
                faults.append("initial_state has no name")
            if first.data_type != state.data_type:
                faults.append(
                    f"data_type is {type_name(state.data_type)}, but that of initial_state is "
                    f"{type_name(first.data_type)}"
                )
            if any(size < 0 for size in first.dims):
                faults.append("initial_state has a variable dimension")
            elif len(first.dims) != len(state.dims) or any(
                one not in (-1, other) for one, other in zip(state.dims, first.dims, strict=False)
            ):
                faults.append(f"dims are {list(state.dims)}, but those of initial_state are {list(first.dims)}")
            if first.WhichOneof("state_data") is None:
                faults.append("initial_state has neither zero_data nor data_file")
        for fault in faults:
            message = f"state {state.input_name!r}: {fault}"
            yield error(model.config_path, "TR113", message, "correct the state", place)


def batch_tensors(_: Repository, model: Model) -> Iterator[Finding]:
    """TR114, TR124: batch_input or batch_output names undeclared tensors, or is invalid."""
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
                        did_you_mean(name, known) or f"use a declared tensor: {listed(known)}",
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
