"""Checks of parameters and tensors that a certain backend refuses when it loads the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from triton_repository_check import placeholders
from triton_repository_check.expected import Expected
from triton_repository_check.files import FileKind
from triton_repository_check.findings import Finding
from triton_repository_check.model import FIL_FILES, WRITTEN, Model, Repository, in_repository
from triton_repository_check.rules.base import (
    Checks,
    did_you_mean,
    each_model,
    each_model_expected,
    error,
    listed,
    near,
    on_cpu,
    warning,
)
from triton_repository_check.schema import DataType, ModelInstanceGroup, type_name

CODES = {
    "TR126": "the backend refuses the value of a parameter, or an accelerator",
    "TR127": "the backend doesn't support a tensor",
    "TR133": "the backend doesn't run on the CPU, or on a GPU",
    "TR134": "an execution accelerator of onnxruntime refuses or ignores a parameter, or can't write its files",
    "TR803": "the fil backend refuses or ignores a parameter, or doesn't find a tensor",
    "TR804": "the numbers in the names of PyTorch's inputs have a gap",
}

_BOOL = "true, false, on, off, 1 or 0", re.compile(r"true|false|on|off|1|0", re.IGNORECASE).fullmatch
_INT = "a whole number", re.compile(r"\s*[+-]?\d.*", re.DOTALL).fullmatch
_START = re.compile(r"\s*([+-]?)0*(\d+)")
_WORD = re.compile(r"\s*(\S*)")
_NUMBER = re.compile(r"\s*[+-]?\.?\d")


def _is_int32(text: str) -> bool:
    """Whether C++ stoi reads an int. The server ends where it doesn't fit into one."""
    start = _START.match(text)
    if start is None or len(start[2]) > _DIGITS_OF_INT32:
        return False
    return -(2**31) <= int(start[1] + start[2]) < 2**31


def _are_devices(text: str) -> bool:
    return all(_DEVICE.fullmatch(each) for each in text.split(";") if each)


_DIGITS_OF_INT32 = 10
_INT32 = "a whole number below 2147483648", _is_int32
_ARENA, _SHRINKAGE = "enable_mem_arena", "memory.enable_memory_arena_shrinkage"
_FIRST_ARENA = (2, 60)
"""The first server whose ONNX Runtime, 1.23, fails only if the first device has no arena."""
_DEVICE = re.compile(r"cpu(?::0*)?|gpu(?::[0-9]*)?")
PARAMETERS: dict[str, dict[str, tuple[str, Callable[[str], object]]]] = {
    "onnxruntime": {
        "execution_mode": ("0 or 1", re.compile(r"\s*\+?0*[01](?!\d).*", re.DOTALL).fullmatch),
        "intra_op_thread_count": _INT32,
        "inter_op_thread_count": _INT32,
        _ARENA: _BOOL,
        "enable_mem_pattern": _BOOL,
        _SHRINKAGE: ("cpu:0, gpu: and a number, or several with ; between them", _are_devices),
    },
    "python": {"FORCE_CPU_ONLY_INPUT_TENSORS": ("yes or no", re.compile("yes|no").fullmatch)},
    "pytorch": {
        "DISABLE_OPTIMIZED_EXECUTION": _BOOL,
        "ENABLE_CACHE_CLEANING": _BOOL,
        "INFERENCE_MODE": _BOOL,
        "ENABLE_WEIGHT_SHARING": _BOOL,
        "INTRA_OP_THREAD_COUNT": _INT32,
        "INTER_OP_THREAD_COUNT": _INT32,
    },
}
"""Parameters by backend, with what they may be. The backend refuses other values; numbers are read as by C++ stoi."""
_TEXT = "a text", re.compile(r".*", re.DOTALL).fullmatch
_PRECISION = "FP32, FP16 or INT8, or from release 26.02 on BF16"
_BUILDS = ": each start builds TensorRT's engines again, or the model doesn't load"
_BF16 = (2, 66)
"""The first server whose onnxruntime backend takes the precision BF16, release 26.02."""
ACCELERATORS: dict[str, dict[str, tuple[str, Callable[[str], object]]]] = {
    "tensorrt": {
        "precision_mode": (_PRECISION, re.compile("FP32|FP16|INT8|BF16").fullmatch),
        **dict.fromkeys((
            "max_workspace_size_bytes", "trt_auxiliary_streams", "trt_builder_optimization_level", "trt_dla_core",
            "trt_ep_context_embed_mode", "trt_max_partition_iterations", "trt_min_subgraph_size",
        ), _INT),
        **dict.fromkeys((
            "int8_use_native_calibration_table", "trt_build_heuristics_enable", "trt_context_memory_sharing_enable",
            "trt_cuda_graph_enable", "trt_detailed_build_log", "trt_dla_enable", "trt_dump_ep_context_model",
            "trt_dump_subgraphs", "trt_engine_cache_enable", "trt_force_sequential_engine_build",
            "trt_force_timing_cache", "trt_layer_norm_fp32_fallback", "trt_sparsity_enable", "trt_timing_cache_enable",
        ), _BOOL),
        **dict.fromkeys((
            "int8_calibration_table_name", "trt_engine_cache_path", "trt_engine_cache_prefix",
            "trt_ep_context_file_path", "trt_extra_plugin_lib_paths", "trt_profile_max_shapes",
            "trt_profile_min_shapes", "trt_profile_opt_shapes", "trt_tactic_sources", "trt_timing_cache_path",
        ), _TEXT),
    },
    "cuda": dict.fromkeys(("do_copy_in_default_stream", "use_ep_level_unified_stream"), _BOOL),
}  # fmt: skip
"""Parameters by accelerator, with what they may be: onnxruntime.cc of the backend, up to release 26.06.

The backend refuses others for tensorrt; those for cuda it passes to ONNX Runtime.
"""
_IN_ONNX_RUNTIME = {
    **dict.fromkeys(("trt_bf16_enable", "trt_fp16_enable", "trt_int8_enable"), "precision_mode"),
    "trt_max_workspace_size": "max_workspace_size_bytes",
}
"""Names of ONNX Runtime, and those of the backend for the same."""
KINDS = {"tensorrt": ModelInstanceGroup.KIND_GPU, "openvino": ModelInstanceGroup.KIND_CPU}
"""The kinds of instances that these backends take; they refuse others when they load the model."""
_FIL_BOOLS = {
    "predict_proba": (2, 35),
    "use_experimental_optimizations": (2, 35),
    "xgboost_allow_unknown_field": (2, 39),
}
"""Optional parameters of the fil backend, and the first server that refuses other values than true and false.

Older ones take the default instead: shared_state.hpp of rapids-triton, of releases 23.06 and 23.10.
"""
_IS_CLASSIFIER = (2, 61)
"""The first server with is_classifier, release 25.09. It takes the older name output_class, too."""
_NOT_IN_TORCH = (DataType.TYPE_UINT16, DataType.TYPE_UINT32, DataType.TYPE_UINT64)
_DIGITS = re.compile(r"[0-9]{0,6}")
_INDEXED = re.compile(r".*?__\d*")


def parameters(_: Repository, model: Model) -> Iterator[Finding]:
    """TR126: the backend refuses the value of a parameter, or an accelerator."""
    if model.config is None:
        return
    for key, (allowed, fits) in PARAMETERS.get(model.backend, {}).items():
        if key in model.config.parameters and not _by_python(model):
            value = model.config.parameters[key].string_value
            if not fits(value) and not placeholders.names(value):
                message = f"parameter {key} is {value!r}, but the backend takes only {allowed}"
                at = model.where.find("parameters", key)
                yield error(model.config_path, "TR126", message, f"set string_value to {allowed}", at)
    if model.backend != "onnxruntime":
        return
    accelerators = model.config.optimization.execution_accelerators
    for side, level, names in (("cpu", error, ("openvino",)), ("gpu", warning, ("tensorrt", "cuda"))):
        for index, accelerator in enumerate(getattr(accelerators, f"{side}_execution_accelerator")):
            if accelerator.name not in names:
                yield level(
                    model.config_path,
                    "TR126",
                    f"the onnxruntime backend has no {side}_execution_accelerator {accelerator.name!r}",
                    f"use {' or '.join(names)}, or remove it",
                    model.where.find(
                        "optimization", 0, "execution_accelerators", 0, f"{side}_execution_accelerator", index
                    ),
                )


def shrinkage(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR126: each request fails, because ONNX Runtime has no arena of memory to shrink."""
    if model.config is None or model.backend != "onnxruntime" or _by_python(model):
        return
    if _SHRINKAGE not in model.config.parameters:
        return
    values = {key: value.string_value for key, value in model.config.parameters.items()}
    kinds = [device[:3] for device in values[_SHRINKAGE].split(";") if device]
    at = model.where.find("parameters", _SHRINKAGE)
    if "cpu" in kinds and not _enabled(values.get(_ARENA, "1")):
        message = f"{_SHRINKAGE} is {values[_SHRINKAGE]!r}, but {_ARENA} is {values[_ARENA]!r}: each request fails"
        yield error(model.config_path, "TR126", message, f"remove one of the two, or set {_ARENA} to 1", at)
    looks_at = kinds[:1] if expected.server is not None and expected.server >= _FIRST_ARENA else kinds
    if "gpu" in looks_at and on_cpu(model, expected):
        # A warning if a pod may see GPUs without requesting them, or if the server may look only at the first device.
        groups = model.config.instance_group
        sure = bool(groups) and all(group.kind == ModelInstanceGroup.KIND_CPU for group in groups)
        level = error if sure and (kinds[0] == "gpu" or expected.server is not None) else warning
        message = f"{_SHRINKAGE} is {values[_SHRINKAGE]!r}, but the model runs on the CPU: each request fails"
        yield level(model.config_path, "TR126", message, "set string_value to cpu:0", at)


def accelerators(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR134: an execution accelerator refuses or ignores a parameter, or can't write its files."""
    if model.config is None or model.backend != "onnxruntime" or _by_python(model):
        return
    chosen = model.config.optimization.execution_accelerators
    path = ("optimization", 0, "execution_accelerators", 0)
    for index, accelerator in enumerate(chosen.cpu_execution_accelerator):
        if accelerator.name == "openvino" and accelerator.parameters:
            message = f"the backend ignores the parameters of openvino: {listed(sorted(accelerator.parameters))}"
            at = model.where.find(*path, "cpu_execution_accelerator", index)
            yield warning(model.config_path, "TR134", message, "remove them", at)
    # The backend reads the others only for instances on a GPU.
    kinds = {group.kind for group in model.config.instance_group} or {ModelInstanceGroup.KIND_AUTO}
    surely = ModelInstanceGroup.KIND_GPU in kinds or bool(ModelInstanceGroup.KIND_AUTO in kinds and expected.gpus)
    if expected.gpus == 0 or not (surely or ModelInstanceGroup.KIND_AUTO in kinds):
        return
    level = error if surely else warning
    for index, accelerator in enumerate(chosen.gpu_execution_accelerator):
        name, known = accelerator.name, ACCELERATORS.get(accelerator.name, {})
        for key, value in sorted(accelerator.parameters.items()):
            at = model.where.find(*path, "gpu_execution_accelerator", index, "parameters", key)
            allowed, fits = known.get(key, _TEXT)
            if name == "tensorrt" and key not in known:
                right = _IN_ONNX_RUNTIME.get(key) or near(key, known, 0.85)
                remedy = f"did you mean {right!r}?" if right else "remove it"
                yield level(model.config_path, "TR134", f"{name} has no parameter {key!r}", remedy, at)
            elif placeholders.names(value):
                continue
            elif not fits(value) or (value == "BF16" and expected.server and expected.server < _BF16):
                message = f"{key} of {name} is {value!r}, but the backend takes only {allowed}"
                yield level(model.config_path, "TR134", message, f"write {allowed}", at)
            elif name == "tensorrt" and _enabled(accelerator.parameters.get(WRITTEN.get(key, ""), "")):
                entry = model.named.get(in_repository(value, model.directory))
                if entry is not None and entry.kind is FileKind.NOTHING:
                    message = f"{key} is {value!r}, which isn't there, and servers can't write to the repository"
                    remedy = "use a path of a volume in spec.podTemplate; below /tmp it lasts as long as the pod"
                    yield warning(model.config_path, "TR134", message + _BUILDS, remedy, at)


def _enabled(value: str) -> bool:
    """Whether the backend reads `value` as true."""
    return value.lower() in ("true", "on", "1")


def torch_tensors(_: Repository, model: Model) -> Iterator[Finding]:
    """TR127: the pytorch backend doesn't support the tensors of a TorchScript model."""
    config = model.config
    if config is None or model.backend != "pytorch" or _by_python(model) or config.platform == "torch_aoti":
        return
    for side in ("input", "output"):
        if not getattr(config, side):
            message = f"no {side} is declared, but the pytorch backend needs at least one"
            yield error(model.config_path, "TR127", message, f"add {side} [ … ]", model.where)
        for index, tensor in enumerate(getattr(config, side)):
            size = len(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims) + (
                config.max_batch_size > 0
            )
            if tensor.data_type in _NOT_IN_TORCH:
                why = f"PyTorch has no {type_name(tensor.data_type)}"
            elif tensor.data_type == DataType.TYPE_STRING and size > 1:
                why = "the pytorch backend takes strings only with one dimension, the batch included"
            else:
                continue
            remedy = "export the model with another type or shape"
            at = model.where.find(side, index)
            yield error(model.config_path, "TR127", f"{side} {tensor.name!r}: {why}", remedy, at)
    batcher = config.sequence_batching
    controls = [tensor.name for tensor in batcher.control_input if tensor.control]
    states = [name for state in batcher.state for name in (state.input_name, state.output_name)]
    if plain := [name for name in (*controls, *states) if not _INDEXED.fullmatch(name)]:
        yield error(
            model.config_path,
            "TR127",
            f"the pytorch backend needs names such as START__1 for controls and states, not {listed(plain)}",
            "append two underscores and the number of the argument of forward",
            model.where.find("sequence_batching"),
        )


def torch_indexes(_: Repository, model: Model) -> Iterator[Finding]:
    """TR804: the numbers in the names of PyTorch's inputs have a gap.

    The pytorch backend makes a list with one place for each tensor of a request, and writes a tensor NAME__INDEX to the
    place INDEX without a check (SetInputTensors in libtorch.cc, since 2026 in model_instance_state.cc).
    A warning, because the names may be the keys of a dictionary, or arguments of forward.
    """
    config = model.config
    if config is None or model.backend != "pytorch" or _by_python(model) or config.platform == "torch_aoti":
        return
    batcher = config.sequence_batching
    names = [
        *(tensor.name for tensor in config.input),
        *(control.name for control in batcher.control_input if control.control),
        *(state.input_name for state in batcher.state),
        *(name for batch in config.batch_input for name in batch.target_name),
    ]
    # The backend looks for the first `__`. If one name has no number after it, the order of config.pbtxt counts.
    numbers = [_DIGITS.fullmatch(name.partition("__")[2]) if "__" in name else None for name in names]
    indexes = [int(number[0] or "0") for number in numbers if number]
    gaps = sorted({*range(len(names))} - {*indexes}) if len(indexes) == len(names) else []
    if not gaps:
        return
    message = (
        f"{listed(names)}: no input has the number {listed(gaps)}, so that the pytorch backend leaves an argument of "
        "forward without a tensor, and writes beyond its list if a number is too high"
    )
    at = model.where.find("input", 0)
    yield warning(model.config_path, "TR804", message, f"number the inputs from 0 to {len(names) - 1}", at)


def devices(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR133: the backend refuses the kind of an instance group."""
    takes = KINDS.get(model.backend)
    if takes is None or model.config is None or _by_python(model) or "enable_multi_device" in model.config.parameters:
        return
    name = ModelInstanceGroup.Kind.Name(takes)
    for index, group in enumerate(model.config.instance_group):
        if group.kind not in (takes, ModelInstanceGroup.KIND_AUTO):
            kind = ModelInstanceGroup.Kind.Name(group.kind)
            message = f"the {model.backend} backend takes only {name}, not {kind}"
            at = model.where.find("instance_group", index, "kind")
            yield error(model.config_path, "TR133", message, f"set kind: {name}", at)
    auto = [i for i, group in enumerate(model.config.instance_group) if group.kind == ModelInstanceGroup.KIND_AUTO]
    # Warnings, because a pod may see GPUs without requesting them, and a server may be without support for them.
    if model.backend == "tensorrt" and expected.gpus == 0 and (auto or not model.config.instance_group):
        remedy = "request a GPU in spec.server.resources.limits"
        yield warning(model.config_path, "TR133", "TensorRT needs a GPU, but the server has none", remedy, model.where)
    if model.backend == "openvino" and expected.gpus and auto:
        message = "Triton takes KIND_GPU for this group, but the openvino backend takes only KIND_CPU"
        at = model.where.find("instance_group", auto[0])
        yield warning(model.config_path, "TR133", message, "set kind: KIND_CPU", at)


def forests(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR803: the fil backend refuses or ignores a parameter, or doesn't find a tensor."""
    if model.config is None or model.backend != "fil" or _by_python(model):
        return
    values = {key: value.string_value for key, value in model.config.parameters.items()}

    def found(key: str, message: str, remedy: str, level: Callable[..., Finding] = error) -> Iterator[Finding]:
        if not placeholders.names(values.get(key, "")):
            at = model.where.find("parameters", key) if key in values else model.where
            yield level(model.config_path, "TR803", message, remedy, at)

    kind = _word(values.get("model_type", "")) or "xgboost"
    if kind not in FIL_FILES:
        message = f"model_type is {kind!r}, but the fil backend takes only {listed(sorted(FIL_FILES))}"
        yield from found("model_type", message, did_you_mean(kind, FIL_FILES) or "write the format of the model")
    for key, since in _FIL_BOOLS.items():
        if values.get(key, "true") not in ("true", "false") and (expected.server is None or expected.server >= since):
            message = f"{key} is {values[key]!r}, but the fil backend takes only true or false"
            yield from found(key, message, "write true or false", error if expected.server else warning)
    # From src/shared_state.h of the backend: one of them is needed, and with it a threshold for classifiers.
    older = expected.server is not None and expected.server < _IS_CLASSIFIER
    keys = ("output_class",) if older else ("output_class", "is_classifier")
    words = {key: _word(values.get(key, "")) for key in keys}
    chosen = next((word for word in words.values() if word in ("true", "false")), "")
    if not chosen and not any(map(placeholders.names, words.values())):
        key = next((key for key, word in words.items() if word), keys[-1] if expected.server else keys[0])
        yield from found(key, f"the fil backend needs {key}, true or false", f"set {key} to true or false")
    if chosen == "true" and not _NUMBER.match(values.get("threshold", "")):
        message = "the fil backend needs threshold, a number, for a classifier"
        yield from found("threshold", message, "set threshold, e.g. to 0.5")
    # From src/model.h, and triton/input.hpp of rapids-triton: the backend looks them up by these names in each request.
    for side, name in (("input", "input__0"), ("output", "output__0")):
        tensors = getattr(model.config, side)
        index = next((i for i, tensor in enumerate(tensors) if tensor.name == name), None)
        if index is None and tensors:
            message = f"no {side} is named {name}, which the fil backend needs for each request"
            yield error(model.config_path, "TR803", message, f"name it {name}", model.where.find(side, 0))
        elif index is not None and side == "input" and tensors[index].data_type != DataType.TYPE_FP32:
            message = f"{name} is {type_name(tensors[index].data_type)}, but the fil backend takes only TYPE_FP32"
            at = model.where.find(side, index)
            yield error(model.config_path, "TR803", message, "set data_type: TYPE_FP32", at)


def _word(value: str) -> str:
    """Returns the first word of `value`, which the fil backend reads by C++ streams."""
    match = _WORD.match(value)
    return match[1] if match else ""


def _by_python(model: Model) -> bool:
    """Whether another library than the backend's own loads the model, e.g. the runtime model.py of pytorch."""
    return bool(model.config.runtime)


CHECKS: Checks = (
    ("parameters", each_model(parameters)),
    ("arenas of memory", each_model_expected(shrinkage)),
    ("parameters of accelerators", each_model_expected(accelerators)),
    ("tensors for PyTorch", each_model(torch_tensors)),
    ("numbers of PyTorch's inputs", each_model(torch_indexes)),
    ("forests", each_model_expected(forests)),
    ("devices of backends", each_model_expected(devices)),
)
