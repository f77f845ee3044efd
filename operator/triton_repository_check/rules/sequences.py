"""Checks of sequences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository
from triton_repository_check.places import Node
from triton_repository_check.rules.base import Checks, each_model, error, listed, note, warning
from triton_repository_check.schema import DataType, ModelConfig, type_name

CODES = {
    "TR113": "sequence_batching: invalid controls or states",
    "TR128": "sequence_batching: sequences end after a pause of one second",
}

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


def sequences(_: Repository, model: Model) -> Iterator[Finding]:
    """TR113: the controls or states of sequence_batching are invalid."""
    config = model.config
    if config is None or not config.HasField("sequence_batching"):
        return
    batcher, at = config.sequence_batching, model.where.find("sequence_batching")
    yield from _controls(model, batcher, at)
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


def _controls(model: Model, batcher: Any, at: Node) -> Iterator[Finding]:
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


def pauses(_: Repository, model: Model) -> Iterator[Finding]:
    """TR128: Triton ends sequences after a short pause."""
    config = model.config
    if config is None or not config.HasField("sequence_batching"):
        return
    if not config.sequence_batching.max_sequence_idle_microseconds:
        yield note(
            model.config_path,
            "TR128",
            "a sequence ends when its client pauses for more than a second, which is Triton's default; the next "
            "request fails",
            "set max_sequence_idle_microseconds to the longest pause of your clients",
            model.where.find("sequence_batching"),
        )


def _control_fault(control: Any) -> tuple[str, str] | None:
    """Returns what is wrong with a control, and what to do; None if it is valid.

    Follows GetBooleanSequenceControlProperties and GetTypedSequenceControlProperties in core/model_config_utils.cc.
    """
    fields = {name: list(getattr(control, name)) for name in _FALSE_TRUE if getattr(control, name)}
    if control.kind == _CORRID:
        if fields:
            return f"has {next(iter(fields))}, but its value is the sequence's id", "set only data_type"
        if control.data_type not in _CORRID_TYPES:
            allowed = ", ".join(map(type_name, _CORRID_TYPES))
            return f"has data_type {type_name(control.data_type)}", f"set data_type to one of {allowed}"
        return None
    if len(fields) != 1:
        return (
            f"sets {listed(fields)} of {listed(_FALSE_TRUE)}",
            "set exactly one of them, e.g. int32_false_true: [ 0, 1 ]",
        )
    name, values = next(iter(fields.items()))
    if len(values) != 2:
        return f"has {len(values)} values in {name}", "set two values: for false and for true"
    return None


def _states(model: Model, batcher: Any, at: Node) -> Iterator[Finding]:
    """TR113: an implicit state is invalid (sequence_batch_scheduler.cc in core)."""
    times = Counter(state.input_name for state in batcher.state if state.initial_state)
    for index, state in enumerate(batcher.state):
        place = at.find("state", index)
        twice = times[state.input_name] > 1
        unnamed = [field for field in ("input_name", "output_name") if not getattr(state, field)]
        for field in unnamed:
            yield error(model.config_path, "TR113", f"state {index} has no {field}", f'add {field}: "…"', place)
        if state.data_type == DataType.TYPE_INVALID:
            # The python backend's process ends at each request. Other backends may not use the type.
            level = error if model.backend == "python" else warning
            message = f"state {state.input_name!r} has no data_type"
            yield level(model.config_path, "TR113", message, "add e.g. data_type: TYPE_FP32", place)
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
                size not in (-1, initial) for size, initial in zip(state.dims, first.dims, strict=False)
            ):
                faults.append(f"dims are {list(state.dims)}, but those of initial_state are {list(first.dims)}")
            if first.WhichOneof("state_data") is None:
                faults.append("initial_state has neither zero_data nor data_file")
        for fault in faults:
            message = f"state {state.input_name!r}: {fault}"
            yield error(model.config_path, "TR113", message, "correct the state", place)


CHECKS: Checks = (
    ("sequences", each_model(sequences)),
    ("pauses of sequences", each_model(pauses)),
)
