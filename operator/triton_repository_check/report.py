"""The report of the check container to the operator, as its termination message.

The kubelet keeps the last 4096 bytes of a termination message. Of these it keeps the first 12288 bytes divided by the
number of the pod's containers, including init and ephemeral containers (normalizeStatus in pkg/kubelet/status).
Truncated JSON is invalid, so the report leaves out what doesn't fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from triton_repository_check.expected import Expected
from triton_repository_check.findings import Finding, Severity, in_order
from triton_repository_check.graph import EntrypointError, entrypoint, loaded
from triton_repository_check.model import Model, Repository
from triton_repository_check.needs import shared_memory
from triton_repository_check.schema import ModelInstanceGroup
from triton_repository_check.text import one_line

CONTAINER_BYTES = 4096
"""Maximum size of a container's termination message."""
POD_BYTES = 12288
"""Maximum size of the termination messages of all containers of a pod, in equal shares."""
USUAL_CONTAINERS = 6
"""Default number of containers: three init containers, the server, a sidecar, and one from kubectl debug."""

_TEXT = 400
"""Maximum length of a message or remedy in the report. The container's log has the full text."""
_MODELS_SHARE = 0.4
"""Share of the free space that is reserved for models."""


@dataclass(frozen=True, slots=True)
class ModelLine:
    """A model in the report.

    - `decoupled`: whether Triton's latency of it may end before its last response; None if an older check made the
      report.
    - `gpu`: whether Triton puts it on a GPU of the server unless it sees none. An older check doesn't say so.
    """

    name: str
    versions: tuple[int, ...]
    ensemble: bool
    decoupled: bool | None = False
    gpu: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The models and findings of a repository.

    - `ok`: whether there are no errors. Warnings don't count.
    - `model_count`: number of all models of the repository. `models` may have fewer if the report is truncated.
    - `need`: estimate of the shared memory that the models need, in bytes.
    - `have`: shared memory of the pod in bytes; -1 if unknown.
    - `findings`: errors first.
    - `truncated`: number of findings that are left out.
    """

    ok: bool
    entrypoint: str | None
    models: tuple[ModelLine, ...]
    model_count: int
    need: int
    have: int
    findings: tuple[Finding, ...]
    truncated: int


def _is_measured_too_short(model: Model) -> bool:
    """Whether Triton's time of a request may end before the last response.

    Triton's TensorRT-LLM backend reports a request after its last response, and Triton itself an ensemble's.
    """
    return model.is_decoupled and model.backend != "tensorrtllm"


_ON_GPU = frozenset({"dali", "fil", "onnxruntime", "python", "pytorch", "tensorflow", "tensorrt"})
"""Backends whose models Triton puts on a GPU if it sees one and config.pbtxt has no instance_group. That for OpenVINO
prefers the CPU (TRITONBACKEND_GetBackendAttribute), and of others it isn't known."""


def _takes_gpu(model: Model, gpus: int | None) -> bool:
    """Whether Triton puts all instances on GPUs unless it sees none (NormalizeInstanceGroup in model_config_utils.cc).

    `gpus`: the server's GPUs; None if unknown.
    """
    if not gpus or model.is_ensemble or model.unread or (model.config is None and model.has_config):
        return False
    groups = model.config.instance_group if model.config is not None else ()
    if not groups:
        return model.backend in _ON_GPU
    # An index that the server lacks makes KIND_CPU of KIND_AUTO, too.
    return all(group.kind == ModelInstanceGroup.KIND_AUTO and not group.gpus for group in groups)


def limit(containers: int = USUAL_CONTAINERS) -> int:
    """Returns the maximum size in bytes of a termination message in a pod with `containers` containers."""
    return min(CONTAINER_BYTES, POD_BYTES // max(containers, 1))


def report(repository: Repository, findings: Iterable[Finding], expected: Expected) -> Report:
    """Returns the complete report."""
    ordered = in_order(findings)
    try:
        entry = entrypoint(repository, expected.entrypoint, expected.load_models)
    except EntrypointError:
        entry = None
    models = [m for m in repository.models.values() if m.looks_like_model()]
    return Report(
        ok=not any(f.severity is Severity.ERROR for f in ordered),
        entrypoint=entry,
        models=tuple(
            ModelLine(m.name, m.served, m.is_ensemble, _is_measured_too_short(m), _takes_gpu(m, expected.gpus))
            for m in models
        ),
        model_count=len(models),
        need=shared_memory(repository, expected.devices, loaded(repository, expected.load_models), expected.pool_bytes),
        have=-1 if expected.shared_memory is None else expected.shared_memory,
        findings=ordered,
        truncated=0,
    )


def render(full: Report, size: int = CONTAINER_BYTES) -> str:
    """Returns `full` as compact JSON of at most `size` bytes in UTF-8. `size` must be 512 or more.

    Keeps the first findings and models that fit: the entrypoint, then decoupled models, then those on a GPU, then
    others. The report contains the number of findings that are left out and of all models.
    """
    ranked = sorted(full.models, key=lambda m: (m.name != full.entrypoint, not m.decoupled, not m.gpu))
    models = [_model_fields(model) for model in ranked]
    count, findings = len(full.findings), [_truncated_finding(finding) for finding in full.findings[:size]]
    document: dict[str, Any] = {
        "ok": full.ok,
        "entrypoint": full.entrypoint,
        "models": [],
        "modelCount": full.model_count,
        "sharedMemory": {"need": full.need, "have": full.have},
        "findings": [],
        "truncated": full.truncated + count,
    }
    room = size - len(_json(document).encode())
    for_models = min(sum(map(_cost, models)), int(room * _MODELS_SHARE))
    document["findings"], spent = _first_that_fit(findings, room - for_models)
    document["models"], _ = _first_that_fit(models, room - spent)
    document["truncated"] = full.truncated + count - len(document["findings"])
    return _json(document)


def parse(text: str | None) -> Report | None:
    """Returns the report in a termination message; None if the text is invalid or truncated. Never raises.

    Ignores unknown keys, so that an older operator can read the report of a newer pod. Checks types strictly.
    """
    try:
        data = json.loads(text or "")
        memory = _typed(data, "sharedMemory", dict)
        return Report(
            ok=_typed(data, "ok", bool),
            entrypoint=None if data["entrypoint"] is None else _typed(data, "entrypoint", str),
            models=tuple(_model_line(item) for item in _typed(data, "models", list)),
            model_count=_typed(data, "modelCount", int),
            need=_typed(memory, "need", int),
            have=_typed(memory, "have", int),
            findings=tuple(_finding(item) for item in _typed(data, "findings", list)),
            truncated=_typed(data, "truncated", int),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _typed(data: Any, key: str, kind: type) -> Any:
    value = data[key]
    if type(value) is not kind:  # not isinstance: True is an int
        raise TypeError(key)
    return one_line(str(value)) if kind is str else value


def _model_fields(model: ModelLine) -> dict[str, Any]:
    fields = asdict(model)
    return fields if model.gpu else {key: value for key, value in fields.items() if key != "gpu"}


def _model_line(item: Any) -> ModelLine:
    versions = _typed(item, "versions", list)
    if any(type(version) is not int for version in versions):
        raise TypeError("versions")
    decoupled = _typed(item, "decoupled", bool) if "decoupled" in item else None
    gpu = "gpu" in item and _typed(item, "gpu", bool)
    return ModelLine(_typed(item, "name", str), tuple(versions), _typed(item, "ensemble", bool), decoupled, gpu)


def _finding(item: Any) -> Finding:
    line, column = (None if item.get(key) is None else _typed(item, key, int) for key in ("line", "column"))
    return Finding(
        _typed(item, "code", str),
        Severity(_typed(item, "severity", str)),
        _typed(item, "file", str),
        line,
        column,
        _typed(item, "message", str),
        _typed(item, "remedy", str),
    )


def _truncated_finding(finding: Finding) -> dict[str, Any]:
    fields = {k: v for k, v in asdict(finding).items() if v is not None}
    return {k: _truncated(v) if isinstance(v, str) and k != "severity" else v for k, v in fields.items()}


def _truncated(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _TEXT else line[: _TEXT - 1] + "…"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _cost(item: Any) -> int:
    return len(_json(item).encode()) + 1  # the comma


def _first_that_fit(items: Sequence[Any], room: int) -> tuple[list[Any], int]:
    """Returns the first items that fit into `room` bytes, and their size."""
    size = count = 0
    for item in items:
        if size + _cost(item) > room:
            break
        size += _cost(item)
        count += 1
    return list(items[:count]), size
