"""The condition AutoscalerActive: whether the autoscaler gets the load."""

from __future__ import annotations

from triton_operator.api.kinds import AUTOSCALER
from triton_operator.api.status import AUTOSCALER_ACTIVE, Condition
from triton_operator.api.thresholds import CAPACITIES, has_limit
from triton_operator.decisions.decide import Decision
from triton_operator.decisions.snapshot import Snapshot

from . import keda
from .conditions import condition
from .writes import Writes

_NO_LOAD = "FailedGetObjectMetric"


def autoscaler_active(snapshot: Snapshot, decision: Decision, writes: Writes) -> Condition | None:
    """AutoscalerActive: whether the autoscaler gets the load; None without autoscaling."""
    model, facts = snapshot.model, decision.facts
    if model.scaling is None:
        return None
    if refusal := writes.refusal(AUTOSCALER_ACTIVE):
        return condition(AUTOSCALER_ACTIVE, "False", refusal.reason, refusal.message)
    if obstacle := keda.obstacle(snapshot, facts):
        return obstacle
    if not has_limit(facts.thresholds, CAPACITIES):
        return condition(
            AUTOSCALER_ACTIVE, "False", "NoThreshold",
            "the capacity of one server isn't known: set the annotation tritonoperator.io/max-qps-per-replica, or "
            "tritonoperator.io/max-qps, which is divided by spec.autoscaling.max",
        )  # fmt: skip
    if model.is_keda:
        return keda.reported(snapshot)
    reported = {c["type"]: c for c in (snapshot.child(AUTOSCALER) or {}).get("status", {}).get("conditions", [])}
    if not reported:
        return condition(
            AUTOSCALER_ACTIVE, "Unknown", "Starting", "the HorizontalPodAutoscaler hasn't reported a status yet"
        )
    for kind in ("AbleToScale", "ScalingActive"):
        if reported.get(kind, {}).get("status") == "False":
            words = reported[kind]
            if words["reason"] == _NO_LOAD and not any(pod.is_ready for pod in snapshot.pods):
                return condition(
                    AUTOSCALER_ACTIVE, "Unknown", "Starting", "no server is ready yet, so there is no load"
                )
            hint = _hint(words["reason"]) + _direct_adds(decision)
            return condition(AUTOSCALER_ACTIVE, "False", words["reason"], words["message"] + hint)
    if "ScalingActive" not in reported:
        return condition(
            AUTOSCALER_ACTIVE, "Unknown", "Starting", "the HorizontalPodAutoscaler hasn't reported a status yet"
        )
    limited = reported.get("ScalingLimited", {})
    if limited.get("status") == "True" and limited.get("reason") == "TooManyReplicas":
        return condition(
            AUTOSCALER_ACTIVE, "True", "AtMaximum",
            f"the load needs more servers than spec.autoscaling.max ({model.scaling.max}) allows",
        )  # fmt: skip
    return condition(AUTOSCALER_ACTIVE, "True", "Scaling", "the autoscaler gets the load metric")


def _direct_adds(decision: Decision) -> str:
    adds = decision.scale is not None and has_limit(decision.facts.thresholds, CAPACITIES)
    return "; the engine Direct still adds servers" if adds else ""


def _hint(reason: str) -> str:
    if reason not in (_NO_LOAD, "InvalidMetricSourceType"):
        return ""
    return (
        "; check that prometheus-adapter is installed with the rule of manifests/monitoring/adapter, and that the "
        "condition MonitoringAvailable is True. The number of servers doesn't change while the metric is missing"
    )
