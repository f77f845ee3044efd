"""The field autoscaling: the last decision of an engine with which the operator scales itself."""

from __future__ import annotations

from triton_operator.api.status import AutoscalingStatus
from triton_operator.scaling import ScaleDecision


def last_scale(decision: ScaleDecision | None, before: AutoscalingStatus | None, now: str) -> AutoscalingStatus | None:
    """Returns the status of the decision: `before` if the decision hasn't changed, None without a decision."""
    if decision is None:
        return None
    if before is not None and (before.desired, before.reason) == (decision.floor, decision.reason):
        return before
    load = "" if decision.load is None else f"{decision.load:.3g}"
    return AutoscalingStatus(
        desired=decision.floor, load=load, reason=decision.reason, message=decision.message, time=now
    )
