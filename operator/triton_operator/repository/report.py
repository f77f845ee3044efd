"""The termination message of the check container: what the operator learns from the pod.

The kubelet keeps the last 4096 bytes that a container wrote, and of those the first 12288 divided by the number of
the pod's containers, init and ephemeral ones included (normalizeStatus in pkg/kubelet/status). JSON that is cut is no
JSON, so the report is made to fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from triton_operator.repository.findings import Finding, Severity, in_order, one_line
from triton_operator.repository.graph import EntrypointError, entrypoint, loaded
from triton_operator.repository.model import Repository
from triton_operator.repository.needs import shared_memory
from triton_operator.repository.rules.base import Expected

CONTAINER_BYTES = 4096
"""What a container may leave."""
POD_BYTES = 12288
"""What all containers of a pod may leave together, in equal shares."""
USUAL_CONTAINERS = 6
"""Three init containers and the server, a sidecar, and one from kubectl debug."""

_TEXT = 400
"""Characters of a message or remedy that are reported; the container's log has all of them."""
_MODELS_SHARE = 0.4
"""Of the room that is left, what models may take from findings."""


@dataclass(frozen=True, slots=True)
class ModelLine:
    """A model in the report."""

    name: str
    versions: tuple[int, ...]
    ensemble: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What a repository holds and what is wrong with it."""

    ok: bool
    """Whether there is no error. Warnings leave it true."""
    entrypoint: str | None
    models: tuple[ModelLine, ...]
    model_count: int
    """All models of the repository; more than `models` has where that was cut."""
    need: int
    """Bytes of shared memory that the models need, estimated."""
    have: int
    """Bytes of shared memory that the pod has; -1 where it isn't known."""
    findings: tuple[Finding, ...]
    """Errors first."""
    truncated: int
    """How many findings were left out."""


def limit(containers: int = USUAL_CONTAINERS) -> int:
    """Bytes of a termination message that survive in a pod of that many containers."""
    return min(CONTAINER_BYTES, POD_BYTES // max(containers, 1))


def report(repository: Repository, findings: Iterable[Finding], wanted: Expected) -> Report:
    """The whole report, nothing cut."""
    ordered = in_order(findings)
    try:
        entry = entrypoint(repository, wanted.entrypoint, wanted.load_models)
    except EntrypointError:
        entry = None
    models = [m for m in repository.models.values() if m.looks_like_one()]
    return Report(
        ok=not any(f.severity is Severity.ERROR for f in ordered),
        entrypoint=entry,
        models=tuple(ModelLine(m.name, m.served, m.is_ensemble) for m in models),
        model_count=len(models),
        need=shared_memory(repository, wanted.devices, loaded(repository, wanted.load_models)),
        have=-1 if wanted.shared_memory is None else wanted.shared_memory,
        findings=ordered,
        truncated=0,
    )


def render(full: Report, size: int = CONTAINER_BYTES) -> str:
    """`full` as compact JSON of at most `size` bytes in UTF-8, which must be 512 or more.

    Of the findings the first that fit are kept, of the models too, the entry model before all others; counts tell
    what was left out.
    """
    models = [asdict(model) for model in sorted(full.models, key=lambda m: m.name != full.entrypoint)]
    count, findings = len(full.findings), [_short(finding) for finding in full.findings[:size]]
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
    document["findings"], spent = _fitting(findings, room - for_models)
    document["models"], _ = _fitting(models, room - spent)
    document["truncated"] = full.truncated + count - len(document["findings"])
    return _json(document)


def parse(text: str | None) -> Report | None:
    """The report in a termination message; None where the text is none, or was cut. Never raises.

    Unknown keys are passed over, so that an older operator reads a newer pod; types are held to strictly.
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


def _model_line(item: Any) -> ModelLine:
    versions = _typed(item, "versions", list)
    if any(type(version) is not int for version in versions):
        raise TypeError("versions")
    return ModelLine(_typed(item, "name", str), tuple(versions), _typed(item, "ensemble", bool))


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


def _short(finding: Finding) -> dict[str, Any]:
    fields = {k: v for k, v in asdict(finding).items() if v is not None}
    return {k: _cut(v) if isinstance(v, str) and k != "severity" else v for k, v in fields.items()}


def _cut(text: str) -> str:
    shown = one_line(text)
    return shown if len(shown) <= _TEXT else shown[: _TEXT - 1] + "…"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _cost(item: Any) -> int:
    return len(_json(item).encode()) + 1  # the comma


def _fitting(items: Sequence[Any], room: int) -> tuple[list[Any], int]:
    """The longest head of `items` that fits, and its bytes."""
    spent = kept = 0
    for item in items:
        if spent + _cost(item) > room:
            break
        spent += _cost(item)
        kept += 1
    return list(items[:kept]), spent
