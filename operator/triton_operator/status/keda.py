"""The condition AutoscalerActive with the engine KEDA, in KEDA's own words."""

from __future__ import annotations

from triton_operator.api.kinds import SCALED_OBJECT, is_deleting
from triton_operator.api.series import ARRIVALS
from triton_operator.api.status import AUTOSCALER_ACTIVE, Condition, Truth
from triton_operator.decisions.snapshot import Object, Snapshot
from triton_operator.render import Facts

from .conditions import condition

_STARTING = "KEDA hasn't reported a status of the ScaledObject yet; check that KEDA's operator runs"


def obstacle(snapshot: Snapshot, facts: Facts) -> Condition | None:
    """Returns AutoscalerActive if the wanted engine can't begin: KEDA or Prometheus is missing, or KEDA hasn't ended.

    None if it can begin.
    """
    scaled_object = snapshot.child(SCALED_OBJECT)
    if not snapshot.model.is_keda:
        if scaled_object is None:
            return None
        return condition(
            AUTOSCALER_ACTIVE, "Unknown", "WaitingForKEDA",
            "the HorizontalPodAutoscaler follows when KEDA has released the ScaledObject, so that only one autoscaler "
            "scales the servers; check that KEDA's operator runs. Until then the number of servers stays",
        )  # fmt: skip
    if not facts.cluster.keda:
        return condition(
            AUTOSCALER_ACTIVE, "False", "KEDAMissing",
            "the cluster has no CRD for ScaledObject, so the number of servers stays: install KEDA, or choose another "
            "spec.autoscaling.engine; serving works without it",
        )  # fmt: skip
    if not facts.prometheus:
        return condition(
            AUTOSCALER_ACTIVE, "False", "NoPrometheus",
            "no known Prometheus has the load for KEDA, so the number of servers stays; see MonitoringAvailable, or "
            "set PROMETHEUS_URL of the operator",
        )  # fmt: skip
    if scaled_object is not None and is_deleting(scaled_object):
        return condition(
            AUTOSCALER_ACTIVE, "Unknown", "WaitingForKEDA",
            "the ScaledObject was deleted, and KEDA hasn't released it yet; check that KEDA's operator runs. Until "
            "then the number of servers stays",
        )  # fmt: skip
    return None


def reported(snapshot: Snapshot) -> Condition:
    """Returns AutoscalerActive with what KEDA says about the ScaledObject."""
    scaled_object = snapshot.child(SCALED_OBJECT) or {}
    conditions = {c["type"]: c for c in scaled_object.get("status", {}).get("conditions", [])}
    ready, active, fallback = (conditions.get(kind, {}) for kind in ("Ready", "Active", "Fallback"))
    if ready.get("status", "Unknown") == "Unknown" and not ready.get("reason"):
        return condition(AUTOSCALER_ACTIVE, "Unknown", "Starting", _STARTING)
    if conditions.get("Paused", {}).get("status") == "True":
        return _quote("False", conditions["Paused"], "; the number of servers stays")
    if fallback.get("status") == "True":
        if not any(pod.is_ready for pod in snapshot.pods):
            return condition(AUTOSCALER_ACTIVE, "Unknown", "Starting", "no server is ready yet, so there is no load")
        return _quote("False", fallback, _hint(scaled_object))
    if ready.get("status") != "True":
        return _quote("False" if ready.get("status") == "False" else "Unknown", ready, _hint({}))
    if active.get("status") not in ("True", "False"):
        return condition(AUTOSCALER_ACTIVE, "Unknown", "Starting", "KEDA hasn't read the load yet")
    asleep = (snapshot.main.deployment or {}).get("spec", {}).get("replicas") == 0
    return _quote("True", active, f"; a server starts when {ARRIVALS} is above 0" if asleep else "")


def _quote(status: Truth, words: Object, hint: str = "") -> Condition:
    """Returns AutoscalerActive with a condition of KEDA, which may lack the reason and the message."""
    reason, message = words.get("reason") or "Unknown", words.get("message") or "KEDA gives no reason"
    return condition(AUTOSCALER_ACTIVE, status, str(reason), str(message) + hint)


def _hint(scaled_object: Object) -> str:
    triggers = scaled_object.get("spec", {}).get("triggers", [])
    also = f", and the series {ARRIVALS} of your gateway's requests" if len(triggers) > 1 else ""
    return (
        "; KEDA can't read all values from Prometheus, so it removes no server: check that MonitoringAvailable is "
        f"True, and that KEDA can reach the Prometheus and finds the load{also}"
    )
