"""Formats a TritonModel and its pods as text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from triton_operator.api import names
from triton_operator.api.status import PROGRESSING, READY, Condition, ThresholdStatus, TritonModelStatus
from triton_operator.api.text import one_line
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.status import pods as judge

from . import show_scaling

Object = dict[str, Any]
_MARK = {"True": "✓", "False": "✗", "Unknown": "?"}
_WIDTH = 110


def is_ready(model: Object) -> bool:
    """Returns whether the condition Ready is True."""
    return any(c.type == READY and c.status == "True" for c in _status(model).conditions)


def status(model: Object, pods: Sequence[Object], autoscaler: Object | None, now: datetime) -> str:
    """Returns the image, conditions, scaling, thresholds, models and pods as text."""
    seen = _status(model)
    metadata = model["metadata"]
    lines = [f"{names.KIND} {metadata['namespace']}/{metadata['name']}"]
    if seen.observed_generation < metadata.get("generation", 0):
        lines.append("  the operator hasn't processed the latest change of the spec yet")
    if seen.image:
        lines.append(f"  image     {seen.image.reference} ({seen.image.delivery}) {seen.image.digest}".rstrip())
        lines += _wrap("  change    ", seen.image.change) if seen.image.change else []
    lines += [f"  entry     {seen.entrypoint or '-'}", f"  endpoint  {seen.endpoint or '-'}", ""]
    width = max((len(c.type) for c in seen.conditions), default=0)
    for condition in seen.conditions:
        lines += _wrap(f"  {_mark(condition)} {condition.type:<{width}} {condition.reason}: ", condition.message)
    scaling = show_scaling.sentences(model, seen, autoscaler, now)
    lines += ["", *(line for words in scaling for line in _wrap("  ", words))] if scaling else []
    if seen.thresholds:
        lines += ["", *table(["THRESHOLD", "VALUE", "SINCE", "SOURCE"], [_threshold(t) for t in seen.thresholds])]
    if seen.models:
        lines += ["", *table(["MODEL", "VERSION", "STATE", "PODS"], [_row(m) for m in seen.models])]
        for failed in (m for m in seen.models if m.reason):
            lines += _wrap(f"  {failed.name}: ", failed.reason)
        all_ = seen.loaded.rpartition("/")[2]
        if all_.isdecimal() and int(all_) > len(seen.models):
            lines += [f"  {int(all_) - len(seen.models)} more models: kubectl triton models {metadata['name']}"]
    if pods:
        lines += ["", *table(["POD", "READY", "RESTARTS", "NOW"], [_pod(p) for p in pods])]
    return "\n".join(map(one_line, lines))


def _status(model: Object) -> TritonModelStatus:
    return TritonModelStatus.model_validate(model.get("status", {}))


def _mark(condition: Condition) -> str:
    if condition.type == PROGRESSING:
        return "✓" if condition.reason == "Complete" else "…" if condition.status == "True" else "✗"
    return _MARK[condition.status]


def _row(model: Any) -> list[str]:
    return [model.name, model.version or "-", model.state, model.pods]


def _threshold(state: ThresholdStatus) -> list[str]:
    return [str(ThresholdKey(state.kind, state.version)), state.value, f"{state.since[:19]}Z", state.source]


def _pod(pod: Object) -> list[str]:
    if not judge.alive(pod):
        ended = judge.problem(pod)
        now = ended.reason if ended else "terminating"
    elif judge.is_ready(pod):
        now = "serving"
    else:
        now = (judge.problem(pod) or judge.phase(pod)).reason
    return [pod["metadata"]["name"], "yes" if judge.is_ready(pod) else "no", str(judge.restarts(pod)), now]


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Returns the lines of a table with aligned columns, indented by two."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in [head, *rows]]


def _wrap(start: str, text: str) -> list[str]:
    return textwrap.wrap(start + text, _WIDTH, subsequent_indent="      ", drop_whitespace=True) or [start]
