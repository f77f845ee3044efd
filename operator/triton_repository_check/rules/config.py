"""Checks of a config.pbtxt without the rest of the repository."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from triton_repository_check.expected import Expected
from triton_repository_check.findings import Finding, Severity
from triton_repository_check.model import MODEL_FILES, PLATFORMS, Model, Repository
from triton_repository_check.placeholders import FATAL, finding, names
from triton_repository_check.places import Node, written
from triton_repository_check.rules.backends import PARAMETERS
from triton_repository_check.rules.base import Checks, each_model, each_model_expected, error, note, warning
from triton_repository_check.versions import release, unknown

CODES = {
    "TR103": "config.pbtxt: name differs from the directory",
    "TR105": "config.pbtxt: neither backend nor platform is set",
    "TR106": "config.pbtxt: unknown backend or platform",
    "TR109": "config.pbtxt: the server is too old for a field",
    "TR120": "platform and backend conflict",
    "TR122": "model_metrics is incomplete",
    "TR131": "config.pbtxt: the library of runtime doesn't exist",
    "TR132": "config.pbtxt: the server image doesn't have the backend",
}

KNOWN_BACKENDS = (
    "armnn_tflite",
    "dali",
    "fil",
    "identity",
    "onnxruntime",
    "openvino",
    "python",
    "pytorch",
    "repeat",
    "square",
    "tensorflow",
    "tensorrt",
    "tensorrtllm",
    "vllm",
)
"""Backends of the Triton project. A server image can contain other backends."""

_WITH_PLATFORM = frozenset(PLATFORMS.values())
"""Backends for which Triton checks the platform."""
_IMAGES = {
    "vllm": "nvcr.io/nvidia/tritonserver:{release}-vllm-python-py3",
    "tensorrtllm": "nvcr.io/nvidia/tritonserver:{release}-trtllm-python-py3",
    "tensorflow": "nvcr.io/nvidia/tritonserver:25.02-py3, the last with TensorFlow",
}
"""Server images by backend, where `-py3` has it not."""
_ALIKE = 0.8
"""How similar a misspelt backend is, as for difflib. Below it, `kaldi` looks like `dali`."""
_OFTEN_MEANT = {
    "onnx": "onnxruntime",
    "ort": "onnxruntime",
    "torch": "pytorch",
    "libtorch": "pytorch",
    "trt": "tensorrt",
}


def unfilled(_: Repository, model: Model) -> Iterator[Finding]:
    """TR129: placeholders of a template are left. The models of TensorRT-LLM's templates know their own ones."""
    if not model.unfilled:
        return
    placeholders = [name for field, node in model.unfilled for name in names(node.text, bare=field in FATAL)]
    sure = [model.where.find("parameters", key, "value", 0, "string_value") for key in _read_parameters(model)]
    tensors = _tensor_names(model)
    fatal = [node for field, node in model.unfilled if (field in FATAL and node not in tensors) or node in sure]
    is_template = model.backend == "tensorrtllm" or any("${" in source for source in model.sources.values())
    level = Severity.ERROR if fatal else Severity.NOTE if is_template else Severity.WARNING
    yield finding(model.config_path, level, list(dict.fromkeys(placeholders)), (fatal or [model.unfilled[0][1]])[0])


def _read_parameters(model: Model) -> tuple[str, ...]:
    """Returns the parameters that the backend refuses with a placeholder."""
    return (*PARAMETERS.get(model.backend, ()), *(("EXECUTION_ENV_PATH",) if model.backend == "python" else ()))


def _tensor_names(model: Model) -> list[Node]:
    return [name for side in ("input", "output") for tensor in model.where.fields.get(side, ())
            for name in tensor.fields.get("name", ())]  # fmt: skip


def name(_: Repository, model: Model) -> Iterator[Finding]:
    """TR103: the name differs from the directory's name."""
    if model.config is not None and names(model.config.name, bare=True):
        return  # unfilled reports it
    if model.config is not None and model.config.name not in ("", model.name):
        yield error(
            model.config_path,
            "TR103",
            f"name is {model.config.name!r}, but the directory is {model.name!r}",
            f"set name to {model.name!r}, or remove it",
            model.where.find("name"),
        )


def backend(_: Repository, model: Model) -> Iterator[Finding]:
    """TR105, TR106: the backend is missing or unknown."""
    config = model.config
    if config is None or model.is_ensemble or config.HasField("model_repository_agents"):
        return  # an agent can replace the configuration
    if names(config.backend or config.platform, bare=True):
        return  # unfilled reports it
    if config.platform and not config.backend:
        if config.platform not in PLATFORMS:
            near = _near(config.platform, (*PLATFORMS, "ensemble"))
            wrong = config.platform in KNOWN_BACKENDS and not config.default_model_filename
            yield (error if wrong else warning)(
                model.config_path,
                "TR106",
                f"unknown platform {config.platform!r}{near}",
                f"set backend instead, or use one of {', '.join(PLATFORMS)}, ensemble",
                model.where.find("platform"),
            )
    elif not model.backend:
        yield error(
            model.config_path,
            "TR105",
            "neither backend nor platform is set, and there is no model file with a standard name",
            f'set the backend, e.g. backend: "python", or add one of the files {", ".join(MODEL_FILES)}',
        )
    elif model.backend not in KNOWN_BACKENDS and not _has_own_backend(model):
        near = _near(model.backend, KNOWN_BACKENDS)
        yield (warning if near else note)(
            model.config_path,
            "TR106",
            f"the Triton project has no backend {model.backend!r}{near}",
            "correct backend, unless the server image contains it",
            model.where.find("backend"),
        )


def lacking(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR132: the tag of the server image says that it doesn't have the backend."""
    if model.backend in expected.lacks and not _has_own_backend(model):
        image = _IMAGES.get(model.backend, "a server image with this backend")
        yield error(
            model.config_path,
            "TR132",
            f"the server image doesn't have backend {model.backend!r}",
            f"set spec.server.image to {image.format(release=release(expected.server))}",
            model.where.find("backend"),
        )


def platform(_: Repository, model: Model) -> Iterator[Finding]:
    """TR120: the platform belongs to another backend."""
    config = model.config
    if config is None or not config.platform or config.backend not in _WITH_PLATFORM:
        return
    if config.platform == "ensemble":
        return  # ensemble.shape reports it
    if PLATFORMS.get(config.platform, "") != config.backend:
        fitting = [name for name, of in PLATFORMS.items() if of == config.backend]
        yield error(
            model.config_path,
            "TR120",
            f"platform {config.platform!r} conflicts with backend {config.backend!r}",
            f"remove platform, or set it to {' or '.join(fitting)}",
            model.where.find("platform"),
        )


def runtime(_: Repository, model: Model) -> Iterator[Finding]:
    """TR131: the library that runtime names is neither the backend's own nor in the model's directory."""
    config = model.config
    if config is None or not config.runtime or model.backend not in KNOWN_BACKENDS:
        return
    if names(config.runtime, bare=True):
        return  # unfilled reports it
    own = config.runtime == "model.py" or config.runtime.startswith(f"libtriton_{model.backend}")
    if not own and config.runtime not in model.files | model.entries:
        yield error(
            model.config_path,
            "TR131",
            f"runtime is {config.runtime!r}, which is neither in {model.directory}/ nor a part of the backend",
            f"remove runtime, or set it to libtriton_{model.backend}.so",
            model.where.find("runtime"),
        )


def metrics(_: Repository, model: Model) -> Iterator[Finding]:
    """TR122: a metric_control in model_metrics lacks a required field."""
    if model.config is None or "model_metrics" not in model.config.DESCRIPTOR.fields_by_name:
        return
    for index, control in enumerate(model.config.model_metrics.metric_control):
        lacking = (
            "metric_identifier { family: … }"
            if not control.metric_identifier.family
            else "histogram_options { buckets: … }"
            if not control.histogram_options.buckets
            else ""
        )
        if lacking:
            yield error(
                model.config_path,
                "TR122",
                f"metric_control {index} has no {lacking.partition(' ')[0]}",
                f"add {lacking}",
                model.where.find("model_metrics", 0, "metric_control", index),
            )


def newer(_: Repository, model: Model, expected: Expected) -> Iterator[Finding]:
    """TR109: the server is older than a field and therefore rejects the file."""
    if model.config is None or expected.server is None:
        return
    for field, _value, node in written(model.config, model.where):
        if since := unknown(field.full_name.partition(".")[2], expected.server):
            yield error(
                model.config_path,
                "TR109",
                f"field {field.name} needs server {since[0]}.{since[1]}, "
                f"but the server is {expected.server[0]}.{expected.server[1]}",
                "remove the field, or use a newer server image",
                node,
            )


def _has_own_backend(model: Model) -> bool:
    """Whether the model's directory contains the backend's library."""
    return f"libtriton_{model.backend}.so" in model.files | model.entries


def _near(word: str, words: tuple[str, ...]) -> str:
    match = _OFTEN_MEANT.get(word.lower()) or next(iter(get_close_matches(word.lower(), words, 1, _ALIKE)), "")
    return f"; did you mean {match!r}?" if match in words else ""


CHECKS: Checks = (
    ("placeholders", each_model(unfilled)),
    ("name", each_model(name)),
    ("fields and the server's version", each_model_expected(newer)),
    ("backend", each_model(backend)),
    ("backends of the server image", each_model_expected(lacking)),
    ("platform", each_model(platform)),
    ("runtime", each_model(runtime)),
    ("metrics", each_model(metrics)),
)
