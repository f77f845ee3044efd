"""The engine HPA: a HorizontalPodAutoscaler, which gets the load from prometheus-adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.kinds import NewerField
from triton_operator.api.series import ARRIVALS
from triton_operator.api.types import TritonModel
from triton_operator.scaling import ScaleDecision

from .engine import BEHAVIOR, Engine, Known, Scaled, Scaler, Verdict

METRIC = "triton_autoscaler_load"
"""Name of the metric that prometheus-adapter serves: the load as a number of servers (manifests/monitoring/adapter)."""

_NO_LOAD = "FailedGetObjectMetric"
_NEVER_THE_FIRST = (
    "at least one server stays, because spec.autoscaling.behavior.scaleUp would never add the first: give it a policy "
    "of the type Pods"
)
_NO_STATUS = Verdict("Unknown", "Starting", "the HorizontalPodAutoscaler hasn't reported a status yet")


def _spec(model: TritonModel, known: Known) -> dict[str, Any] | None:
    """Returns the spec of the HorizontalPodAutoscaler.

    It contains no threshold. Its metric is the load, which the recording rules compute from the thresholds. So a new
    threshold takes effect for the autoscaler and for the alerts at the same time. Without the metric the autoscaler
    doesn't change the number of servers.
    """
    scaling = model.scaling
    if scaling is None:
        return None
    target = f"{max(1, round(scaling.utilization * 1000))}m"
    return {
        "scaleTargetRef": {
            "apiVersion": kinds.DEPLOYMENT.api_version,
            "kind": kinds.DEPLOYMENT.kind,
            "name": model.name,
        },
        "minReplicas": max(scaling.min, known.floor, 0 if _adds_the_first(scaling.behavior or BEHAVIOR) else 1),
        "maxReplicas": scaling.max,
        "metrics": [
            {
                "type": "Object",
                "object": {
                    "describedObject": {
                        "apiVersion": names.API_VERSION,
                        "kind": names.KIND,
                        "name": model.name,
                    },
                    "metric": {"name": METRIC},
                    "target": {"type": "AverageValue", "averageValue": target},
                },
            }
        ],
        "behavior": scaling.behavior or BEHAVIOR,
    }


def _adds_the_first(behavior: Mapping[str, Any]) -> bool:
    """Returns whether this scaling speed allows a first server: a percentage of zero servers is zero."""
    rules = behavior.get("scaleUp") or {}
    of_pods = [policy.get("type") == "Pods" for policy in rules.get("policies") or BEHAVIOR["scaleUp"]["policies"]]
    if rules.get("selectPolicy") == "Disabled":
        return False
    return all(of_pods) if rules.get("selectPolicy") == "Min" else any(of_pods)


def says(scaled: Scaled, _: ScaleDecision | None) -> Verdict:
    """Returns what the HorizontalPodAutoscaler reports."""
    scaler, scaling = scaled.objects.get(kinds.AUTOSCALER, {}), scaled.model.scaling
    is_asleep = (scaled.deployment or {}).get("spec", {}).get("replicas") == 0
    reported = {c["type"]: c for c in scaler.get("status", {}).get("conditions", [])}
    for kind in ("AbleToScale", "ScalingActive"):
        if reported.get(kind, {}).get("status") == "False":
            words = reported[kind]
            if words["reason"] == _NO_LOAD and not scaled.is_ready and not is_asleep:
                return Verdict("Unknown", "Starting", "no server is ready yet, so there is no load")
            return Verdict("False", words["reason"], words["message"] + _hint(words["reason"]))
    if "ScalingActive" not in reported:
        return _NO_STATUS
    limited = reported.get("ScalingLimited", {})
    if limited.get("status") == "True" and limited.get("reason") == "TooManyReplicas":
        most = scaling.max if scaling else 0
        return Verdict("True", "AtMaximum", f"the load needs more servers than spec.autoscaling.max ({most}) allows")
    note = f"; a server starts when {ARRIVALS} is above 0" if is_asleep else ""
    if scaling and not scaling.min and not _adds_the_first(scaling.behavior or BEHAVIOR):
        note = f"; {_NEVER_THE_FIRST}"
    return Verdict("True", "Scaling", f"the autoscaler gets the load metric{note}")


def _hint(reason: str) -> str:
    if reason not in (_NO_LOAD, "InvalidMetricSourceType"):
        return ""
    return (
        "; check that prometheus-adapter is installed with the rule of manifests/monitoring/adapter, and that the "
        "condition MonitoringAvailable is True. The number of servers doesn't change while the metric is missing"
    )


SCALER = Scaler(
    kinds.AUTOSCALER,
    _spec,
    minimum="minReplicas",
    copied="spec.behavior",
    newer=(
        *(NewerField(f"spec.behavior.{rules}.tolerance", "Kubernetes 1.33") for rules in BEHAVIOR),
        NewerField(
            "spec.minReplicas",
            "Kubernetes 1.37",
            value=0,
            instead=1,
            means=", and earlier versions with the feature gate HPAScaleToZero; until then at least one server stays",
        ),
    ),
)
ENGINE = Engine("HPA", SCALER, says, to_zero=True, load_wakes=True)
