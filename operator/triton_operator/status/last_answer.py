"""Conditions before the first answer of a Prometheus: what an earlier answer told stays."""

from __future__ import annotations

from collections.abc import Sequence

from triton_operator.api.reasons import TABLE
from triton_operator.api.status import READY, THRESHOLD_LIVE, Condition, TritonModelStatus
from triton_operator.pods import Pod

from .faults import are_about
from .threshold_live import NOT_QUERIED

_TOLD = frozenset((condition, reason.name) for reason in TABLE if reason.from_prometheus for condition in reason.on)


def with_last_answer(now: TritonModelStatus, before: TritonModelStatus, ready: Sequence[Pod]) -> TritonModelStatus:
    """Returns `now`, assessed without an answer of Prometheus, with the conditions that the last answer gave.

    Otherwise each restart of the operator would write the status of every TritonModel twice, because it starts with no
    answer. The caller knows that the first answer, or the failure to get one, comes soon. A condition isn't kept if the
    spec or a threshold has changed, if there is a reason without Prometheus for another one, or if it is about servers
    that aren't among the `ready` ones.
    """
    if now.observed_generation != before.observed_generation or now.thresholds != before.thresholds:
        return now
    known = {c.type: c for c in before.conditions if (c.type, c.reason) in _TOLD}
    if READY in known and not are_about(known[READY].message, ready):
        del known[READY]
    kept = [known.get(c.type, c) if _would_depend(c) else c for c in now.conditions]
    return now.model_copy(update={"conditions": kept})


def _would_depend(condition: Condition) -> bool:
    """Returns whether an answer of Prometheus could change this condition, which is without one."""
    if condition.type == THRESHOLD_LIVE:
        return condition.message == NOT_QUERIED
    return condition.status == "True"
