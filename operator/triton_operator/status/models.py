"""The models of the repository, as the servers report them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from types import MappingProxyType

from triton_operator.api.quantity import mebibytes
from triton_operator.api.servers import UNLOADED, Index, IndexEntry, LoadTimes
from triton_operator.api.status import ModelStatus
from triton_operator.pods import Problem
from triton_operator.pods.served import Expected
from triton_operator.render.delivery import SHM

READY = "READY"
MISSING = "MISSING"
MAX_MODELS = 5000
"""Maximum number of models that the conditions count, by name and version. A server lists at most 2,000; each may list
others."""
_MAX_REASONS = 50
"""Maximum number of failed models whose reason a condition contains."""
_REASON_MAX = 1024
_LISTED = 100
"""Maximum number of models in the status. Each costs the API server about 0.09 ms of CPU time at every write of the
TritonModel, also at those of users."""
_ROOM = 32 << 10
"""Maximum size of the models in the status, in bytes of JSON."""
_UNLISTED = "Triton doesn't list it: a part of it isn't loaded, or its configuration can't be read"


def model_states(
    model: str,
    indexes: Mapping[str, Index],
    expected: Expected,
    coming: Collection[str] = (),
    shared_memory: str = "",
    load_times: Mapping[str, LoadTimes] = MappingProxyType({}),
) -> list[ModelStatus]:
    """Returns the models that the servers should have loaded, and all others that a server reports.

    Returns at most MAX_MODELS models, the expected ones first. If servers report different states of a model, the
    worst one counts. `pods` is the number of servers on which the model is READY. `model`: the name of the TritonModel.
    `coming`: models that are about to be loaded. `shared_memory`: the size of the servers' /dev/shm, "" if it isn't
    known. `load_times`: pod name → how long its models took to load.
    """
    if not indexes:
        return []
    expected_names = set(expected.names)
    entries = [
        _with_advice(entry, model, shared_memory)
        for pod in sorted(indexes)
        for entry in indexes[pod]
        if entry.reason != UNLOADED or (entry.name in expected_names and entry.name not in coming)
    ]
    rows: dict[tuple[str, str], list[IndexEntry]] = {
        (name, ""): [] for name in sorted(expected_names - {entry.name for entry in entries})
    }
    for entry in sorted(entries, key=lambda entry: entry.name not in expected_names):
        key = entry.name, entry.version
        if key in rows or len(rows) < MAX_MODELS:
            rows.setdefault(key, []).append(entry)
    needed = {name for name, _ in rows} if expected.everywhere else expected_names
    slowest = _slowest(load_times[pod] for pod in indexes if pod in load_times)
    return [
        _status(name, version, row, len(indexes), slowest, everywhere=name in needed, coming=name in coming)
        for (name, version), row in sorted(rows.items())
    ]


def _slowest(load_times: Iterable[LoadTimes]) -> LoadTimes:
    slowest: dict[tuple[str, str], float] = {}
    for times in load_times:
        for model, seconds in times.items():
            slowest[model] = max(seconds, slowest.get(model, 0.0))
    return slowest


def _seconds(seconds: float | None) -> str:
    """Returns a time as text with about two digits, such as 0.043s, 1.5s and 94s; "" for None."""
    if seconds is None:
        return ""
    return f"{round(seconds, 3 if seconds < 1 else 1 if seconds < 10 else 0):g}s"


def merged(groups: Sequence[Sequence[ModelStatus]]) -> list[ModelStatus]:
    """Returns the models of several groups of servers as one list. The worst state of a model counts.

    `pods` is about the servers of the groups that have the model.
    """
    if len(groups) == 1:
        return list(groups[0])
    rows: dict[tuple[str, str], list[ModelStatus]] = {}
    for model in (model for group in groups for model in group):
        key = model.name, model.version
        if key in rows or len(rows) < MAX_MODELS:
            rows.setdefault(key, []).append(model)
    return [_as_one(row) for _, row in sorted(rows.items())]


def _as_one(row: Sequence[ModelStatus]) -> ModelStatus:
    worst = next((model for model in row if model.state != READY), row[0])
    counts = [model.pods.split("/") for model in row]
    ready, servers = (sum(int(count[place]) for count in counts) for place in (0, 1))
    slowest = max((model.load_time for model in row), key=lambda text: float(text.removesuffix("s") or 0))
    return worst.model_copy(update={"pods": f"{ready}/{servers}", "load_time": slowest})


def _with_advice(entry: IndexEntry, model: str, shared_memory: str) -> IndexEntry:
    """Returns the entry with what happened and what to do, where Triton's reason doesn't say it."""
    if "shared memory" in entry.reason and "No space left on device" in entry.reason:
        return replace(entry, reason=f"{_full(entry.reason, shared_memory)}; {entry.reason}")
    if entry.reason != UNLOADED:
        return entry
    reason = f"unloaded by a client; load it again: kubectl triton load {model} {entry.name}"
    return replace(entry, state=MISSING, reason=reason)


def _full(reason: str, shared_memory: str) -> str:
    """Returns that /dev/shm is full, and how full where the Python backend's message says it."""
    size = f" ({shared_memory})" if shared_memory else ""
    needed = re.search(r"requested size \((\d+) bytes\)", reason)
    free = f": less than {mebibytes(Decimal(needed[1]))} is free" if needed else ""
    where = SHM["mountPath"]
    return f"{where}{size} is full{free}. Raise spec.server.sharedMemory, or lower the instances of Python models"


def loaded(models: Sequence[ModelStatus]) -> str:
    """Returns the number of loaded models and of all models, e.g. 3/4; "" if no model is known."""
    return f"{sum(m.state == READY for m in models)}/{len(models)}" if models else ""


def bounded(models: Sequence[ModelStatus]) -> list[ModelStatus]:
    """Returns `models` within the maximum number and size.

    Long reasons are cut. If that isn't enough, models are left out, READY ones first. `status.loaded` counts all of
    them.
    """
    first = sorted(models, key=lambda m: m.state == READY)[:_LISTED]
    reasoned = [m.model_copy(update={"reason": ""}) for m in first if m.reason]
    room = max(0, _ROOM - sum(map(_size, reasoned)))
    longest = min(_REASON_MAX, room // (_MAX_BYTES * max(len(reasoned), 1)))
    listed: list[ModelStatus] = []
    room = _ROOM
    for model in (_short(m, longest) for m in first):
        size = _size(model)
        if size <= room:
            listed.append(model)
            room -= size
    return sorted(listed, key=lambda m: (m.name, m.version))


_MAX_BYTES = 6
"""Bytes of the longest JSON escape of a character: \\u0000."""


def _short(model: ModelStatus, longest: int) -> ModelStatus:
    if len(model.reason) <= longest:
        return model
    return model.model_copy(update={"reason": model.reason[: max(0, longest - 1)] + "…" if longest else ""})


def _size(model: ModelStatus) -> int:
    return len(model.model_dump_json(by_alias=True)) + 1


def load_problem(models: Sequence[ModelStatus]) -> Problem | None:
    """Returns the models that don't load, with Triton's messages; None if all load."""
    failed = [m for m in models if m.state not in (READY, "LOADING", "UNLOADING")]
    if not failed:
        return None
    # A missing model is often a consequence of a failed one, so the failed ones come first.
    failed.sort(key=lambda m: m.state == MISSING)
    reasons = [f"{m.name}: {m.reason or m.state}" for m in failed[:_MAX_REASONS]]
    more = [f"and {len(failed) - _MAX_REASONS} more models"] if len(failed) > _MAX_REASONS else []
    return Problem("ModelLoadFailed", "; ".join(reasons + more))


def _status(
    name: str,
    version: str,
    entries: Sequence[IndexEntry],
    servers: int,
    load_times: LoadTimes,
    *,
    everywhere: bool,
    coming: bool,
) -> ModelStatus:
    ready = sum(entry.state == READY for entry in entries)
    worst = next((entry for entry in entries if entry.state != READY), None)
    if worst is None and everywhere and len(entries) < servers:
        missing = ("LOADING", "") if coming else (MISSING, _UNLISTED)
        worst = IndexEntry(name, version, *missing)
    return ModelStatus(
        name=name,
        version=version,
        state=worst.state if worst else READY,
        reason=worst.reason if worst else "",
        pods=f"{ready}/{servers}",
        load_time=_seconds(load_times.get((name, version))),
    )
