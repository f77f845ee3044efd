"""Conditions over time: their transitions, and which of them cause an Event."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from triton_operator.api.reasons import STEPS, Severity, severity
from triton_operator.api.status import (
    KSTATUS,
    MONITORING_AVAILABLE,
    READY,
    Condition,
    TritonModelStatus,
    Truth,
)

_MESSAGE_MAX = 4096
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?")
"""Kubernetes' pattern of condition reasons, with the maximum length of an Event's reason."""


@dataclass(frozen=True)
class Transition:
    """A change of a condition that causes an Event."""

    kind: Severity
    reason: str
    message: str


def condition(kind: str, status: Truth, reason: str, message: str) -> Condition:
    """Returns a condition without the fields that depend on the previous one; `with_transition_times` adds those."""
    return Condition(type=kind, status=status, reason=word(reason), message=_cut(message))


def word(reason: str) -> str:
    """Returns `reason` as a valid condition reason, because components can write anything into a pod's status."""
    if _REASON.fullmatch(reason):
        return reason
    return "".join(re.findall("[A-Za-z][A-Za-z0-9]*", reason))[:128] or "Unknown"


def _cut(message: str) -> str:
    return message if len(message) <= _MESSAGE_MAX else message[: _MESSAGE_MAX - 1] + "…"


def with_transition_times(
    before: Iterable[Condition], now: Iterable[Condition], time: str, generation: int
) -> list[Condition]:
    """Returns `now` with the generation, and `time` as the last transition of conditions with a new status."""
    previous = {c.type: c for c in before}
    out = []
    for condition in now:
        old = previous.get(condition.type)
        transition_time = old.last_transition_time if old and old.status == condition.status else None
        update = {"last_transition_time": transition_time or time, "observed_generation": generation}
        out.append(condition.model_copy(update=update))
    return out


def transitions(before: Iterable[Condition], now: Sequence[Condition]) -> list[Transition]:
    """Returns the changes that cause an Event. A step causes none, unless the condition was True before."""
    previous = {c.type: (c.status, c.reason) for c in before}
    changes: list[Transition] = []
    for condition in (c for c in now if c.type not in KSTATUS):  # their words are Progressing's
        was = previous.get(condition.type, ("", ""))
        if was == (condition.status, condition.reason) or not _deserves_event(condition, was[0]):
            continue
        transition = Transition(severity(condition.reason, condition.status), condition.reason, condition.message)
        if transition not in changes:
            changes.append(transition)
    return changes


def is_urgent(before: TritonModelStatus, now: TritonModelStatus) -> bool:
    """Returns whether this change must be written at once.

    A step or a different message can wait for the next step, which avoids most writes during a start. In the first
    status only a failure is urgent.
    """
    changes = transitions(before.conditions, now.conditions)
    if not before.observed_generation:
        return any(t.kind == "Warning" for t in changes)
    return (
        before.observed_generation != now.observed_generation
        or before.thresholds != now.thresholds
        or before.autoscaling != now.autoscaling
        or before.canary != now.canary
        or before.last_repair != now.last_repair
        or _true(before) != _true(now)
        or bool(changes)
    )


def _true(status: TritonModelStatus) -> set[str]:
    return {c.type for c in status.conditions if c.status == "True" and c.type not in KSTATUS}


def _deserves_event(condition: Condition, was: str) -> bool:
    if condition.type in (READY, MONITORING_AVAILABLE) and was == "True":
        return True
    return condition.status != "Unknown" and condition.reason not in STEPS
