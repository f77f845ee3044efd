"""Checks of ONNX files against config.pbtxt, like those of the onnxruntime backend when it loads the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from triton_repository_check.expected import Expected
from triton_repository_check.findings import Finding, Severity
from triton_repository_check.model import Model, Repository
from triton_repository_check.onnx import ORT, Network
from triton_repository_check.rules.base import Checks, each_model_expected, error, instead, listed, note, warning
from triton_repository_check.schema import type_name
from triton_repository_check.server_flags import DEFAULT_BATCH, ServerFlags
from triton_repository_check.versions import Version, onnx_of, release

CODES = {
    "TR601": "model.onnx: the file isn't an ONNX model",
    "TR602": "model.onnx: the input or output doesn't exist",
    "TR603": "model.onnx: config.pbtxt declares too few or too many inputs or outputs",
    "TR604": "model.onnx: the type differs",
    "TR605": "model.onnx: the shape differs",
    "TR606": "model.onnx: the batch size is fixed",
    "TR608": "model.onnx: the input can't be optional",
    "TR609": "model.onnx: an input or output is not a tensor",
    "TR610": "model.onnx: the server is too old for the file",
}

_BF16: Version = (2, 67)
"""The first server whose onnxruntime backend knows the type BF16."""
_BOTH = "declare inputs and outputs, with the batch size in dims, so that the server completes nothing"
_PASSED = "a control, a state or a batch_input"
_FILE = "export the model again, or correct config.pbtxt"


def completes(model: Model, flags: ServerFlags | None) -> bool:
    """Whether the onnxruntime backend completes the configuration, because it declares no inputs or no outputs."""
    config = model.config
    whole = config is not None and (config.input or config.batch_input) and config.output
    return (flags is None or flags.completion) and not whole


def possible_batches(model: Model, flags: ServerFlags | None) -> frozenset[int]:
    """Returns the max_batch_size with which the onnxruntime backend may run the model; several if it isn't known."""
    networks = [net for net in model.networks.values() if not isinstance(net, str)]
    sizes = [size for net in networks for size in _batches(model, net, flags)]
    return frozenset(sizes or _of_any_file(model, flags))


def _batches(model: Model, net: Network, flags: ServerFlags | None) -> Sequence[int]:
    """Returns the max_batch_size with which the server runs the file; two if that depends on what it infers.

    Follows AutoCompleteMaxBatch in onnxruntime.cc. It takes an input without a shape as a single value. ONNX Runtime
    infers the shape of an output that has none in the file. It may also infer a fixed size of a variable dimension, but
    seldom of the first one.
    """
    sizes = _of_any_file(model, flags)
    known = [t.dims or () for t in net.inputs] + [t.dims for t in net.outputs if t.dims is not None]
    if len(sizes) == 1 or any(dims[:1] != (-1,) for dims in known):
        return sizes[:1]
    return sizes[1:] if len(known) == len(net.inputs) + len(net.outputs) else sizes


def _of_any_file(model: Model, flags: ServerFlags | None) -> tuple[int, ...]:
    """Returns the max_batch_size of config.pbtxt, and what the server may complete it to."""
    most = model.config.max_batch_size if model.config is not None else 0
    default = DEFAULT_BATCH if flags is None else flags.default_batch
    return (most, default) if most == 0 and default and completes(model, flags) else (most,)


def network(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR601-TR606, TR608, TR609: the ONNX file is invalid, or its inputs and outputs differ from config.pbtxt."""
    for file, net in model.networks.items():
        if isinstance(net, str):
            remedy = "replace it with the exported ONNX model"
            if file.lower().endswith(ORT) or ORT in net:
                remedy = f"{remedy}, or set default_model_filename to the name *{ORT} of a file in the ORT format"
            yield error(file, "TR601", f"not an ONNX model: {net}", remedy)
            continue
        yield from _not_tensors(file, net)
        if model.config is None:
            continue
        where = f" in {file.rpartition('/')[2]}"
        compared = [tuple(_compared(model, net, where, batch)) for batch in _batches(model, net, expected.flags)]
        yield from min(compared, key=lambda found: sum(f.severity is Severity.ERROR for f in found))
        if completes(model, expected.flags):
            yield from _completed(model, net, where)
        yield from _passed(model, net, where)
        yield from _inputs(model, net, where, expected.flags)
        if expected.flags is not None and not expected.flags.completion and not model.config.output:
            message = "no output is declared, and --disable-auto-complete-config lets the server complete none"
            remedy = "declare the outputs, because each request fails without them"
            yield error(model.config_path, "TR603", message, remedy, model.where)


def _compared(model: Model, net: Network, where: str, batch: int) -> Iterator[Finding]:
    """Compares the tensors of config.pbtxt with those of the file. `batch`: the max_batch_size of the server."""
    yield from _side(model, "input", net, where, batch)
    yield from _side(model, "output", net, where, batch)
    yield from _optional(model, net, where, batch)
    yield from _controls(model, net, where, batch)
    yield from _states(model, net, where, batch)


def newer(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR610: the server is too old for the file."""
    most = onnx_of(expected.server) if expected.server is not None else None
    remedy = "export the model for the older version, or use a newer server image"
    for file, net in model.networks.items():
        if isinstance(net, str):
            continue
        yield from _bfloat16(model, file, net, expected.server)
        if most is not None and net.ir_version > most[0]:
            message = f"the file has IR version {net.ir_version}, but the server's ONNX Runtime reads at most {most[0]}"
            yield error(file, "TR610", message, remedy)
        elif most is not None and net.opset > most[1]:
            # A warning, because ALLOW_RELEASED_ONNX_OPSET_ONLY=0 turns this check of ONNX Runtime off.
            message = f"the file has opset {net.opset}, but the server's ONNX Runtime supports at most {most[1]}"
            yield warning(file, "TR610", message, remedy)


def _bfloat16(model: Model, file: str, net: Network, server: Version | None) -> Iterator[Finding]:
    """TR610: the server doesn't know the type of an input, or of an output that config.pbtxt has."""
    outputs = model.config.output if model.config is not None else ()
    names = {t.name for t in net.inputs} | {t.name for t in outputs or net.outputs}
    found = [t.name for t in (*net.inputs, *net.outputs) if t.name in names and t.data_type == "TYPE_BF16"]
    if found and (server is None or server < _BF16):
        level = warning if server is None else error
        message = f"{listed(found)} of TYPE_BF16: servers take this type only from release {release(_BF16)} on"
        yield level(file, "TR610", message, "export the model with FP16 or FP32 tensors, or use a newer server image")


def _inputs(model: Model, net: Network, where: str, flags: ServerFlags | None) -> Iterator[Finding]:
    """TR603: the server counts more or fewer inputs than the file has without those with a default value.

    Follows ValidateInputs in onnxruntime.cc. The backend adds all inputs of the file if config.pbtxt declares none.
    """
    config = model.config
    needed = {tensor.name: tensor for tensor in net.inputs}
    added = completes(model, flags) and not (config.input or config.batch_input)
    declared = {tensor.name for tensor in config.input}
    others = Counter(tensor.name for tensor in config.sequence_batching.control_input for _ in tensor.control)
    others.update(state.input_name for state in config.sequence_batching.state)
    others.update(name for entry in config.batch_input for name in entry.target_name)
    for name, tensor in needed.items() if not added else ():
        if name not in declared | others.keys():
            yield error(
                model.config_path,
                "TR603",
                f"input {name!r} of {where.removeprefix(' in ')} isn't declared",
                f'add input {{ name: "{name}" data_type: {tensor.data_type or "…"} dims: […] }}',
                model.where.find("input", 0),
            )
    for name in sorted(others.keys() & needed.keys()):
        if added:
            message = (
                f"config.pbtxt declares no input, so that the server adds {name!r} as one, which is also {_PASSED}"
            )
            alone = [each for each in needed if each not in others]
            remedy = f"declare the other inputs: {listed(alone)}" if alone else "remove sequence_batching"
        elif name in declared:
            message = f"the server counts {name!r} twice: it is an input, and {_PASSED}"
            remedy = "remove it from input"
        elif others[name] > 1:
            message = f"the server counts {name!r} {others[name]} times, each as {_PASSED}"
            remedy = "export the model with an input for each"
        else:
            continue
        yield error(model.config_path, "TR603", message, remedy, model.where.find("sequence_batching"))
    defaults = {tensor.name for tensor in net.defaults}
    for index, tensor in enumerate(config.input):
        if tensor.name in defaults and not tensor.optional:
            message = f"input {tensor.name!r} has a default value{where}, so that the server doesn't count it"
            only = config.max_batch_size or completes(model, flags)  # with batches none may be optional
            remedy = "remove it" if only else "add optional: true, or remove it"
            yield error(model.config_path, "TR603", message, remedy, model.where.find("input", index))


def _passed(model: Model, net: Network, where: str) -> Iterator[Finding]:
    """TR602: the server passes a control, a state or a batch input that the file doesn't have."""
    config = model.config
    inputs, outputs = {t.name for t in net.inputs}, {t.name for t in net.outputs}
    batcher = config.sequence_batching
    entries = [("control", t.name, inputs) for t in batcher.control_input if t.control]
    entries += [("state", state.input_name, inputs) for state in batcher.state]
    entries += [("state", state.output_name, outputs) for state in batcher.state]
    entries += [("batch_input", name, inputs) for t in config.batch_input for name in t.target_name]
    for kind, name, tensors in entries:
        if name not in tensors:
            yield error(
                model.config_path,
                "TR602",
                f"{kind} {name!r} is neither an input nor an output{where}",
                instead(name, tensors, "one of these"),
                model.where.find("batch_input" if kind == "batch_input" else "sequence_batching"),
            )


def _controls(model: Model, net: Network, where: str, batch: int) -> Iterator[Finding]:
    """TR604, TR605: a control of sequences has another type in the file, or isn't one value."""
    by_name = {tensor.name: tensor for tensor in net.inputs}
    for index, tensor in enumerate(model.config.sequence_batching.control_input):
        at = model.where.find("sequence_batching", 0, "control_input", index)
        actual = by_name.get(tensor.name)
        if actual is None or not tensor.control:
            continue
        kind = _control_type(tensor.control[0])
        if actual.data_type and kind and actual.data_type != kind:
            message = f"control {tensor.name!r} is {kind}, but {actual.data_type}{where}"
            yield error(model.config_path, "TR604", message, "set the control's values in that type", at)
        dims = actual.dims[1:] if actual.dims and batch > 0 else actual.dims
        if dims is not None and dims != (1,):
            message = f"control {tensor.name!r} is {_text(dims)}{where}, but the backend needs [ 1 ]"
            yield error(model.config_path, "TR605", message, _FILE, at)


def _states(model: Model, net: Network, where: str, batch: int) -> Iterator[Finding]:
    """TR604, TR605: a state has another type or shape in the file, so that each request fails.

    Its first value has the type and the dims of config.pbtxt.
    """
    by_name = {tensor.name: tensor for tensor in net.inputs}
    for index, state in enumerate(model.config.sequence_batching.state):
        actual = by_name.get(state.input_name)
        if actual is None:
            continue
        at = model.where.find("sequence_batching", 0, "state", index)
        kind, name = type_name(state.data_type), f"state {state.input_name!r}"
        if actual.data_type and kind not in (actual.data_type, "TYPE_INVALID"):
            message = f"{name} is {kind}, but {actual.data_type}{where}: each request fails"
            yield error(model.config_path, "TR604", message, f"set data_type: {actual.data_type}", at)
        full = (-1, *state.dims) if batch > 0 else tuple(state.dims)
        if actual.dims and state.dims and not _alike(full, actual.dims):
            message = f"{name} is {_text(full)}{' with the batch' if batch else ''}, but {_text(actual.dims)}{where}"
            remedy = f"set dims: {_text(actual.dims[1:] if batch > 0 else actual.dims)}"
            yield error(model.config_path, "TR605", f"{message}: each request fails", remedy, at)


def _alike(dims: Sequence[int], other: Sequence[int]) -> bool:
    return len(dims) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(dims, other, strict=True))


def _control_type(control: Any) -> str:
    """Returns the type of a control's values; empty if it is unknown."""
    for field, name in (("int32", "TYPE_INT32"), ("fp32", "TYPE_FP32"), ("bool", "TYPE_BOOL")):
        if getattr(control, f"{field}_false_true"):
            return name
    return type_name(control.data_type) if control.data_type else ""


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


def _optional(model: Model, net: Network, where: str, batch: int) -> Iterator[Finding]:
    """TR608: an optional input needs a default value in the file and max_batch_size 0."""
    defaults = {tensor.name for tensor in net.defaults}
    for index, tensor in enumerate(model.config.input):
        if not tensor.optional:
            continue
        at = model.where.find("input", index, "optional")
        if batch > 0:
            message = f"input {tensor.name!r} can't be optional, because {_why(model, batch)}"
            remedy = f"{'set max_batch_size to 0' if model.config.max_batch_size else _BOTH}, or remove optional"
        elif tensor.name not in defaults and tensor.name in {t.name for t in net.inputs}:
            message = f"input {tensor.name!r} can't be optional, because it has no default value{where}"
            remedy = "remove optional, or export the model with an initializer for this input"
        else:
            continue
        yield error(model.config_path, "TR608", message, remedy, at)


def _why(model: Model, batch: int) -> str:
    written = model.config.max_batch_size == batch
    return f"max_batch_size is {batch}" if written else f"the server completes max_batch_size to {batch}"


def _completed(model: Model, net: Network, where: str) -> Iterator[Finding]:
    """TR606: the backend completes a side that config.pbtxt doesn't declare, and refuses a fixed batch size there."""
    config = model.config
    sides = ((config.input or config.batch_input, "input", net.inputs), (config.output, "output", net.outputs))
    for declared, side, tensors in sides if config.max_batch_size > 0 else ():
        shapes = {t.name: t.dims or () for t in tensors if side == "input" or t.dims is not None}
        fixed = [name for name, dims in shapes.items() if dims[:1] != (-1,)]
        if not declared and fixed:
            yield error(
                model.config_path,
                "TR606",
                f"{side} {fixed[0]!r} has no variable batch size{where}, but max_batch_size is {config.max_batch_size}",
                "export the model with a dynamic batch size, or set max_batch_size to 0",
                model.where.find("max_batch_size"),
            )


def _side(model: Model, side: str, net: Network, where: str, batch: int) -> Iterator[Finding]:
    by_name = {tensor.name: tensor for tensor in ((*net.inputs, *net.defaults) if side == "input" else net.outputs)}
    for index, tensor in enumerate(getattr(model.config, side)):
        at = model.where.find(side, index)
        actual = by_name.get(tensor.name)
        if actual is None:
            yield error(
                model.config_path,
                "TR602",
                f"there is no {side} {tensor.name!r}{where}",
                instead(tensor.name, by_name, f"an existing {side}"),
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
            yield from _shape(model, side, index, actual.dims, where, batch)
        elif actual.dims is None and actual.is_tensor and actual in net.inputs and not tensor.allow_ragged_batch:
            sizes = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
            if any(size != 1 for size in sizes):  # ONNX Runtime infers shapes only of outputs
                message = f"input {tensor.name!r} has no shape{where}, so that the server takes only a single value"
                yield error(model.config_path, "TR605", message, "export the model with the shape of its inputs",
                            at.find("dims"))  # fmt: skip


def _shape(model: Model, side: str, index: int, actual: tuple[int, ...], where: str, batch: int) -> Iterator[Finding]:
    """TR605, TR606: the shape differs, or the batch size is fixed.

    Follows CompareDimsSupported in onnxruntime_utils.cc: a fixed dimension in the file must be the same in
    config.pbtxt. A variable dimension of an output that ONNX Runtime infers must be variable in config.pbtxt.
    """
    tensor = getattr(model.config, side)[index]
    at = model.where.find(side, index, "dims")
    declared = tuple(tensor.reshape.shape) if tensor.HasField("reshape") else tuple(tensor.dims)
    name = f"{side} {tensor.name!r}"
    if not actual:
        if any(size != 1 for size in declared):
            yield error(model.config_path, "TR605", f"{name} is {_text(declared)}, but a single value{where}",
                        "set dims: [ 1 ]", at)  # fmt: skip
        elif batch > 0 and (side == "output" or not model.config.output):
            yield _scalar(model, name, where)
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
    written = batch == model.config.max_batch_size
    because = "" if written else f", because the server completes max_batch_size to {batch}"
    also = "" if written else f", or {_BOTH}"
    of = f"{name} is {_text(full)}{' with the batch' if batch > 0 else ''}{because}"
    sizes = list(zip(full, actual, strict=False))
    if len(full) != len(actual) or any(a != b for a, b in sizes if b != -1):
        yield error(
            model.config_path,
            "TR605",
            f"{of}, but {_text(actual)}{where}",
            f"set dims: {_text(actual[1:] if batch > 0 else actual)}{also}" if len(actual) > (batch > 0) else _FILE,
            at,
        )
    elif side == "output" and any(a != b for a, b in sizes):
        # ONNX Runtime may infer sizes that the file doesn't declare, and then they must be in config.pbtxt.
        why = "which is right only if ONNX Runtime infers these sizes"
        message = f"{of}, but variable{where}: {_text(actual)}, {why}"
        remedy = f"if the server refuses it, set dims: {_text(actual[1:] if batch > 0 else actual)}"
        yield note(model.config_path, "TR605", message, remedy, at)


def _scalar(model: Model, name: str, where: str) -> Finding:
    """TR606: an input or output without dimensions has no batch size.

    Follows onnxruntime.cc: AutoCompleteMaxBatch refuses it if a side isn't declared. Otherwise the server loads it, and
    takes as many values from the output as the batch has.
    """
    config = model.config
    level = warning if (config.input or config.batch_input) and config.output else error
    return level(
        model.config_path,
        "TR606",
        f"{name} is a single value without a batch size{where}, but max_batch_size is {config.max_batch_size}",
        "export the model with a dynamic batch size, or set max_batch_size to 0",
        model.where.find("max_batch_size"),
    )


def _text(dims: Sequence[int]) -> str:
    return f"[ {', '.join(map(str, dims))} ]" if dims else "[ ]"


CHECKS: Checks = (
    ("model.onnx", each_model_expected(network)),
    ("model.onnx: versions", each_model_expected(newer)),
)
