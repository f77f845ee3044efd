"""The condition AutoscalerActive: whether the autoscaler gets the load."""

from __future__ import annotations

from triton_operator import engines
from triton_operator.api.status import AUTOSCALER_ACTIVE, Condition
from triton_operator.api.thresholds import CAPACITIES, has_limit
from triton_operator.decisions.decide import Decision
from triton_operator.decisions.scale import scaled
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.engines import Engine, Scaled, Verdict

from .conditions import condition
from .writes import Writes


def autoscaler_active(snapshot: Snapshot, decision: Decision, writes: Writes) -> Condition | None:
    """AutoscalerActive: whether the autoscaler gets the load; None without autoscaling."""
    engine = engines.of(snapshot.model)
    if engine is None:
        return None
    if refusal := writes.refusal(AUTOSCALER_ACTIVE):
        return condition(AUTOSCALER_ACTIVE, "False", refusal.reason, refusal.message)
    there = scaled(snapshot, decision.facts)
    obstacle = _previous(engine, there) or engine.obstacle(there) or _no_capacity(there)
    return condition(AUTOSCALER_ACTIVE, *(obstacle or engine.says(there, decision.scale)))


def _previous(engine: Engine, there: Scaled) -> Verdict | None:
    """Returns that the engine waits for the end of another one; None if it doesn't."""
    for scaler in engines.SCALERS:
        if scaler.owner and scaler is not engine.scaler and scaler.kind in there.objects:
            return Verdict(
                "Unknown", scaler.waiting,
                f"the {engine.scaler.kind.kind} follows when {scaler.owner} has released the {scaler.kind.kind}, so "
                f"that only one autoscaler scales the servers; check that {scaler.owner}'s operator runs. Until then "
                "the number of servers stays",
            )  # fmt: skip
    return None


def _no_capacity(there: Scaled) -> Verdict | None:
    if has_limit(there.limits, CAPACITIES):
        return None
    return Verdict(
        "False", "NoThreshold",
        "the capacity of one server isn't known: set the annotation tritonoperator.io/max-qps-per-replica, or "
        "tritonoperator.io/max-qps, which is divided by spec.autoscaling.max",
    )  # fmt: skip
