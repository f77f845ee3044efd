"""The HorizontalPodAutoscaler."""

from __future__ import annotations

from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.kinds import NewerField
from triton_operator.api.status import AUTOSCALER_ACTIVE
from triton_operator.api.types import TritonModel

from .child_type import Child
from .common import obj, only_conditions
from .facts import Facts

METRIC = "triton_autoscaler_load"
"""Name of the metric that prometheus-adapter serves: the load as a number of servers (manifests/monitoring/adapter)."""

BEHAVIOR: dict[str, Any] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Percent", "value": 100, "periodSeconds": 15},
            {"type": "Pods", "value": 2, "periodSeconds": 15},
        ],
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 300,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Percent", "value": 25, "periodSeconds": 60},
            {"type": "Pods", "value": 1, "periodSeconds": 60},
        ],
    },
}


def autoscalers(model: TritonModel, facts: Facts) -> list[dict[str, Any]]:
    """Returns a HorizontalPodAutoscaler if the spec has autoscaling with another engine than KEDA.

    It contains no threshold. Its metric is the load, which the recording rules compute from the thresholds. So a new
    threshold takes effect for the autoscaler and for the alerts at the same time. Without the metric the autoscaler
    doesn't change the number of servers.
    """
    scaling = model.scaling
    if scaling is None or model.is_keda:
        return []
    target = f"{max(1, round(scaling.utilization * 1000))}m"
    scaler = obj(
        model,
        kinds.AUTOSCALER,
        spec={
            "scaleTargetRef": {
                "apiVersion": kinds.DEPLOYMENT.api_version,
                "kind": kinds.DEPLOYMENT.kind,
                "name": model.name,
            },
            "minReplicas": max(scaling.min, facts.autoscaler_floor),
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
        },
    )
    return [scaler]


CHILD = Child(
    kinds.AUTOSCALER,
    autoscalers,
    condition=AUTOSCALER_ACTIVE,
    unchecked="check spec.autoscaling.behavior, which the operator copies unchanged",
    copied="spec.behavior",
    newer=tuple(NewerField(f"spec.behavior.{rules}.tolerance", "Kubernetes 1.33") for rules in BEHAVIOR),
    # The metric's value changes every 15 s.
    status=only_conditions,
)
