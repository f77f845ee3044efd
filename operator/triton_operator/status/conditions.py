"""Conditions over time: what flips, and what is worth an Event."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from triton_operator.api.status import MONITORING_AVAILABLE, PROGRESSING, READY, Condition, TritonModelStatus, Truth

_MESSAGE_MAX = 4096
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?")
"""As Kubernetes has it, and no longer than an Event's."""


@dataclass(frozen=True)
class Transition:
    """A change of a condition that people should hear of."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str


def condition(kind: str, status: Truth, reason: str, message: str) -> Condition:
    """A condition of this pass; `settle` adds what depends on the ones before."""
    return Condition(type=kind, status=status, reason=word(reason), message=plain(_cut(message)))


def word(reason: str) -> str:
    """`reason` as one word: components in a pod's status may write what they like."""
    if _REASON.fullmatch(reason):
        return reason
    return "".join(re.findall("[A-Za-z][A-Za-z0-9]*", reason))[:128] or "Unknown"


def _cut(message: str) -> str:
    return message if len(message) <= _MESSAGE_MAX else message[: _MESSAGE_MAX - 1] + "…"


def plain(text: str) -> str:
    """`text` without halves of pairs of surrogates, which JSON may hold and UTF-8 can't."""
    return text.encode("utf-8", "replace").decode()


def settle(before: Iterable[Condition], now: Iterable[Condition], time: str, generation: int) -> list[Condition]:
    """`now` with the generation, and `time` as the last transition of those whose status differs from `before`."""
    previous = {c.type: c for c in before}
    out = []
    for condition in now:
        old = previous.get(condition.type)
        kept = old.last_transition_time if old and old.status == condition.status else None
        update = {"last_transition_time": kept or time, "observed_generation": generation}
        out.append(condition.model_copy(update=update))
    return out


def transitions(before: Iterable[Condition], now: Sequence[Condition]) -> list[Transition]:
    """What to tell as Events: conditions whose status or reason changed. The steps on the way are not told,
    unless something that was True is lost."""
    previous = {c.type: (c.status, c.reason) for c in before}
    told: list[Transition] = []
    for condition in now:
        was = previous.get(condition.type, ("", ""))
        if was == (condition.status, condition.reason) or not _deserves_event(condition, was[0]):
            continue
        transition = Transition(_severity(condition), condition.reason, condition.message)
        if transition not in told:
            told.append(transition)
    return told


def is_urgent(before: TritonModelStatus, now: TritonModelStatus) -> bool:
    """Whether somebody waits for this change. A step on the way, or other words for what was told, can wait for the
    next step: at a start that is most of the changes. Of the first status only a failure is pressing."""
    told = transitions(before.conditions, now.conditions)
    if not before.observed_generation:
        return any(t.kind == "Warning" for t in told)
    return (
        before.observed_generation != now.observed_generation
        or before.thresholds != now.thresholds
        or _true(before) != _true(now)
        or bool(told)
    )


def _true(status: TritonModelStatus) -> set[str]:
    return {c.type for c in status.conditions if c.status == "True"}


_STEPS = {
    "Creating", "Scheduling", "PreparingRepository", "FetchingRepository", "CheckingRepository", "LoadingModels",
    "EntrypointNotReady", "RollingOut", "NoServerAnswers", "Starting", "Deleting", "Propagating", "Live", "Scaling",
    "CRDsMissing", "NoPrometheus",
}  # fmt: skip


def _deserves_event(condition: Condition, was: str) -> bool:
    if condition.type in (READY, MONITORING_AVAILABLE) and was == "True":
        return True
    return condition.status != "Unknown" and condition.reason not in _STEPS


def _severity(condition: Condition) -> Literal["Normal", "Warning"]:
    well = condition.reason in ("Complete", "ScaledToZero") if condition.type == PROGRESSING else False
    return "Normal" if well or condition.status == "True" or condition.reason == "ScaledToZero" else "Warning"
