"""The engine Direct: decides from the servers' counters how many servers the load needs. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from triton_operator.api import kinds
from triton_operator.api.status import AutoscalingStatus
from triton_operator.api.thresholds import (
    ENSEMBLE_COEFFICIENT,
    MAX_CACHE_USAGE_PER_REPLICA,
    MAX_QPS_PER_REPLICA,
    MAX_STREAMS_PER_REPLICA,
    MAX_TPS_PER_REPLICA,
    TOKEN_COEFFICIENT,
    ThresholdKey,
)
from triton_operator.scaling import Observed, ScaleDecision, State, decide

from .snapshot import Snapshot


def decide_scale(
    snapshot: Snapshot, state: State | None, elapsed: float
) -> tuple[State, ScaleDecision] | tuple[None, None]:
    """Returns the engine's next state and its decision; None twice with another engine, or with nothing to scale yet.

    `state`: the last one, None before the first decision. `elapsed`: the prober's monotonic clock, in seconds.
    """
    scaling, main, autoscaler = snapshot.model.scaling, snapshot.main, snapshot.child(kinds.AUTOSCALER)
    if snapshot.histories is None or scaling is None or main.deployment is None or autoscaler is None:
        return None, None
    spec, limits = autoscaler["spec"], snapshot.facts.thresholds
    observed = Observed(
        now=elapsed,
        histories=snapshot.histories,
        per_server=limits.get(ThresholdKey(MAX_QPS_PER_REPLICA.name), math.inf),
        tokens_per_server=_tokens_per_server(limits),
        streams_per_server=limits.get(ThresholdKey(MAX_STREAMS_PER_REPLICA.name), math.inf),
        cache_per_server=limits.get(ThresholdKey(MAX_CACHE_USAGE_PER_REPLICA.name), math.inf),
        coefficient=limits.get(ThresholdKey(ENSEMBLE_COEFFICIENT.name), 1),
        least=scaling.min,
        most=scaling.max,
        utilization=scaling.utilization,
        predict=scaling.predict,
        replicas=main.deployment["spec"]["replicas"],
        floor=spec.get("minReplicas", 1),
        behavior=spec.get("behavior", {}),
        limited=_may_remove(autoscaler),
        rollout=len(main.living) > len(main.current),
    )
    return decide(state, observed)


def _tokens_per_server(limits: Mapping[ThresholdKey, float]) -> float:
    """Returns the capacity of one server in tokens per second as it counts them; infinite if there is none."""
    capacity = limits.get(ThresholdKey(MAX_TPS_PER_REPLICA.name), math.inf)
    coefficient = limits.get(ThresholdKey(TOKEN_COEFFICIENT.name), math.inf)
    return capacity if math.isinf(coefficient) else capacity / coefficient


def scaling_status(
    decision: ScaleDecision | None, before: AutoscalingStatus | None, now: str
) -> AutoscalingStatus | None:
    """Returns the status of the decision: `before` if the decision hasn't changed, None without a decision."""
    if decision is None:
        return None
    if before is not None and (before.desired, before.reason) == (decision.floor, decision.reason):
        return before
    load = "" if decision.load is None else f"{decision.load:.3g}"
    return AutoscalingStatus(
        desired=decision.floor, load=load, reason=decision.reason, message=decision.message, time=now
    )


def _may_remove(autoscaler: Mapping[str, Any]) -> bool:
    """Whether the HorizontalPodAutoscaler may remove servers that the load needs.

    It may if it would have fewer servers and its minimum or its policies prevent it. It may also if it doesn't get the
    load: when the metric comes back, it may be that of a short time, and too low.
    """
    conditions = autoscaler.get("status", {}).get("conditions", [])
    states = {c["type"]: (c["status"], c.get("reason")) for c in conditions}
    status, reason = states.get("ScalingLimited", ("", ""))
    blind = states.get("ScalingActive", ("", ""))[0] == "False"
    return blind or (status == "True" and reason in ("TooFewReplicas", "ScaleDownLimit"))
