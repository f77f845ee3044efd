"""Formats a TritonModel and its pods as text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from kubectl_triton.text_table import table
from triton_operator.api import names
from triton_operator.api.status import PROGRESSING, READY, SERVER_FAULTS, Condition, ThresholdStatus, status_of
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.pods import Pod
from triton_operator.pods.problems import problem_of, step_of
from triton_repository_check.text import one_line

from . import show_scaling

Object = dict[str, Any]
_MARK = {"True": "✓", "False": "✗", "Unknown": "?"}
_WIDTH = 110


def is_ready(model: Object) -> bool:
    """Returns whether the condition Ready is True."""
    return any(c.type == READY and c.status == "True" for c in status_of(model).conditions)


def status(model: Object, pods: Sequence[Pod], autoscaler: Object | None, now: datetime) -> str:
    """Returns the image, conditions, scaling, thresholds, models and pods as text."""
    state = status_of(model)
    metadata = model["metadata"]
    lines = [f"{names.KIND} {metadata['namespace']}/{metadata['name']}"]
    if state.observed_generation < metadata.get("generation", 0):
        lines.append("  the operator hasn't processed the latest change of the spec yet")
    if state.image:
        lines.append(f"  image     {state.image.reference} ({state.image.delivery}) {state.image.digest}".rstrip())
    if state.server_version:
        lines.append(f"  Triton    {state.server_version}")
    streams = " (may send several responses to a request)" if state.entrypoint in state.decoupled else ""
    lines += [f"  entry     {state.entrypoint or '-'}{streams}", f"  endpoint  {state.endpoint or '-'}", ""]
    width = max((len(c.type) for c in state.for_people), default=0)
    for condition in state.for_people:
        lines += _wrap(f"  {_mark(condition)} {condition.type:<{width}} {condition.reason}: ", condition.message)
    if repair := state.last_repair:
        lines += ["", *_wrap("  last repair  ", f"{repair.time} {repair.server}: {repair.message}")]
    scaling = show_scaling.sentences(model, state, autoscaler, now)
    lines += ["", *(line for words in scaling for line in _wrap("  ", words))] if scaling else []
    if state.thresholds:
        lines += ["", *table(["THRESHOLD", "VALUE", "SINCE", "SOURCE"], [_threshold(t) for t in state.thresholds])]
    if state.models:
        lines += ["", *table(["MODEL", "VERSION", "STATE", "PODS", "LOAD TIME"], [_row(m) for m in state.models])]
        for entry in (m for m in state.models if m.reason):
            lines += _wrap(f"  {entry.name}: ", entry.reason)
        total = state.loaded.rpartition("/")[2]
        if total.isdecimal() and int(total) > len(state.models):
            lines += [f"  {int(total) - len(state.models)} more models: kubectl triton models {metadata['name']}"]
    if pods:
        lines += ["", *table(["POD", "READY", "RESTARTS", "NOW"], [_pod(p) for p in pods])]
    return "\n".join(map(one_line, lines))


def _mark(condition: Condition) -> str:
    if condition.type == PROGRESSING:
        return "✓" if condition.reason == "Complete" else "…" if condition.status == "True" else "✗"
    return "!" if condition.reason in SERVER_FAULTS else _MARK[condition.status]


def _row(model: Any) -> list[str]:
    return [model.name, model.version or "-", model.state, model.pods, model.load_time or "-"]


def _threshold(state: ThresholdStatus) -> list[str]:
    return [str(ThresholdKey(state.kind, state.version)), state.value, f"{state.since[:19]}Z", state.source]


def _pod(pod: Pod) -> list[str]:
    if not pod.is_alive:
        problem = problem_of(pod)
        now = problem.reason if problem else "terminating"
    elif pod.is_ready:
        now = "serving"
    else:
        now = (problem_of(pod) or step_of(pod)).reason
    return [pod.name, "yes" if pod.is_ready else "no", str(pod.restarts), now]


def _wrap(start: str, text: str) -> list[str]:
    return textwrap.wrap(start + text, _WIDTH, subsequent_indent="      ", drop_whitespace=True) or [start]
