"""config.pbtxt of one model, taken by itself."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from triton_operator.repository.findings import Finding
from triton_operator.repository.model import MODEL_FILES, PLATFORMS, Model, Repository
from triton_operator.repository.places import written
from triton_operator.repository.rules.base import Expected, error, note, warning
from triton_operator.repository.versions import unknown

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
"""Backends of the Triton project; others can be built into a server image."""

_WITH_PLATFORM = frozenset(PLATFORMS.values())
"""Backends that Triton compares with the platform; others take any."""
_OFTEN_MEANT = {
    "onnx": "onnxruntime",
    "ort": "onnxruntime",
    "torch": "pytorch",
    "libtorch": "pytorch",
    "trt": "tensorrt",
}


def name(_: Repository, model: Model) -> Iterator[Finding]:
    """TR103: Triton refuses a name that isn't the directory's."""
    if model.config is not None and model.config.name not in ("", model.name):
        yield error(
            model.config_path,
            "TR103",
            f"name is {model.config.name!r}, the directory is {model.name!r}",
            "make them equal, or leave name out",
            model.where.find("name"),
        )


def backend(_: Repository, model: Model) -> Iterator[Finding]:
    """TR105, TR106: no backend, or one that nobody knows."""
    config = model.config
    if config is None or model.is_ensemble or config.HasField("model_repository_agents"):
        return  # an agent brings another configuration
    if config.platform and not config.backend:
        if config.platform not in PLATFORMS:
            near = _near(config.platform, (*PLATFORMS, "ensemble"))
            yield warning(
                model.config_path,
                "TR106",
                f"platform {config.platform!r} is none of Triton's{near}",
                f"use backend, or one of {', '.join(PLATFORMS)}, ensemble",
                model.where.find("platform"),
            )
    elif not model.backend:
        yield error(
            model.config_path,
            "TR105",
            "neither backend nor platform is set, and no model file tells the backend",
            f'add e.g. backend: "python", or a file named one of {", ".join(MODEL_FILES)}',
        )
    elif config.backend and config.backend not in KNOWN_BACKENDS and not _shipped(model):
        near = _near(config.backend, KNOWN_BACKENDS)
        yield (warning if near else note)(
            model.config_path,
            "TR106",
            f"backend {config.backend!r} is none of the Triton project's{near}",
            "correct it, unless the server's image brings it",
            model.where.find("backend"),
        )


def platform(_: Repository, model: Model) -> Iterator[Finding]:
    """TR120: a platform of another backend."""
    config = model.config
    if config is None or not config.platform or config.backend not in _WITH_PLATFORM:
        return
    if config.platform == "ensemble":
        return  # told by ensemble.shape
    if PLATFORMS.get(config.platform, "") != config.backend and not config.platform.startswith(config.backend):
        fitting = [name for name, of in PLATFORMS.items() if of == config.backend]
        yield error(
            model.config_path,
            "TR120",
            f"platform {config.platform!r} with backend {config.backend!r}",
            f"leave platform out, or set it to {' or '.join(fitting)}",
            model.where.find("platform"),
        )


def metrics(_: Repository, model: Model) -> Iterator[Finding]:
    """TR122: model_metrics that lack what a control of a metric needs."""
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
    """TR109: a field that came with a later version than the server's, which refuses the whole file for it."""
    if model.config is None or expected.server is None:
        return
    for field, _value, node in written(model.config, model.where):
        if since := unknown(field.full_name.partition(".")[2], expected.server):
            yield error(
                model.config_path,
                "TR109",
                f"field {field.name} came with server {since[0]}.{since[1]}, "
                f"and the server is {expected.server[0]}.{expected.server[1]}",
                "take it out, or use a newer server",
                node,
            )


def _shipped(model: Model) -> bool:
    """Whether the backend's library comes with the model."""
    return f"libtriton_{model.config.backend}.so" in model.files | model.entries


def _near(word: str, known: tuple[str, ...]) -> str:
    near = _OFTEN_MEANT.get(word.lower()) or next(iter(get_close_matches(word.lower(), known, 1)), "")
    return f"; did you mean {near!r}?" if near in known else ""
