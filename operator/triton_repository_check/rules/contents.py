"""Checks of the model files of TensorRT, PyTorch, OpenVINO, TensorFlow and vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triton_repository_check import placeholders
from triton_repository_check.expected import Expected
from triton_repository_check.files import FileKind
from triton_repository_check.findings import Finding
from triton_repository_check.model import Model, Repository, in_repository
from triton_repository_check.rules.base import Checks, each_model, each_model_expected, error, near, warning
from triton_repository_check.schema import ModelInstanceGroup

CODES = {
    "TR801": "the model file has another format, or is truncated",
    "TR802": "vLLM refuses an argument of its engine in model.json, or doesn't find the model",
    "TR517": "vLLM needs more GPUs than the server has",
}

ENGINE = (
    "disable_log_stats",
    "dtype",
    "enable_prefix_caching",
    "enforce_eager",
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "model",
    "pipeline_parallel_size",
    "quantization",
    "tensor_parallel_size",
    "tokenizer",
    "trust_remote_code",
)
"""Common arguments of vLLM's engine. Others change with its version."""
_NODES = ("distributed_executor_backend", "nnodes", "data_parallel_backend")
"""Arguments that may spread an engine over several nodes."""


def model_file(_: Repository, model: Model) -> Iterator[Finding]:
    """TR801: the backend can't load the file."""
    for path, content in model.contents.items():
        if content.problem:
            level = error if content.sure else warning
            yield level(f"{model.directory}/{path}", "TR801", content.problem, content.remedy)


def engine(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR802, TR517: vLLM's engine refuses its arguments, or has too few GPUs."""
    for path, content in ((path, content) for path, content in model.contents.items() if content.engine):
        file, arguments = f"{model.directory}/{path}", content.engine
        # The backend passes the path on (model.py of vllm_backend). Others may be in a volume, or on Hugging Face.
        entry = model.named.get(in_repository(content.model, model.directory))
        if entry is not None and entry.kind is FileKind.NOTHING and not placeholders.names(content.model):
            message = f"model is {content.model!r}, but the repository has nothing there"
            yield error(file, "TR802", message, "add the directory of the model, or correct the path")
        for key in arguments:
            if key not in ENGINE and (right := near(key, ENGINE, 0.85)):
                # A warning, because a version of vLLM may have both.
                yield warning(file, "TR802", f"vLLM's engine has no argument {key!r}", f"did you mean {right!r}?")
        share: Any = arguments.get("gpu_memory_utilization")
        if type(share) in (int, float) and not 0 < share <= 1:
            message = f"gpu_memory_utilization is {share}, but vLLM takes a share above 0 and at most 1"
            yield error(file, "TR802", message, "write e.g. 0.9")
        sizes: list[Any] = [arguments.get(f"{kind}_parallel_size", 1) for kind in ("tensor", "pipeline")]
        need = sizes[0] * sizes[1] if all(type(size) is int and 0 < size < 2**16 for size in sizes) else 1
        what = f"tensor_parallel_size × pipeline_parallel_size is {need}"
        groups = enumerate(model.config.instance_group if model.config else ())
        for index in (i for i, group in groups if need > 1 and group.kind == ModelInstanceGroup.KIND_GPU):
            message = f"{what}, but vLLM's backend takes KIND_GPU only with one GPU"
            at = model.where.find("instance_group", index, "kind")
            yield error(model.config_path, "TR802", message, "set kind: KIND_MODEL", at)
        if expected.gpus is not None and need > expected.gpus and not arguments.keys() & set(_NODES):
            # A warning without GPUs, because a pod may see some without requesting them, and vLLM can use the CPU.
            level = error if expected.gpus else warning
            message = f"{what}, so vLLM needs {need} GPUs, but the server has {expected.gpus}"
            yield level(
                file, "TR517", message, f"request {need} GPUs in spec.server.resources.limits, or lower the sizes"
            )


CHECKS: Checks = (
    ("contents of model files", each_model(model_file)),
    ("engine of vLLM", each_model_expected(engine)),
)
