"""What scales the servers."""

from __future__ import annotations

from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.types import TritonModel

from .common import obj

METRIC = "triton_autoscaler_load"
"""The load in servers' worth, as prometheus-adapter names it (manifests/monitoring/adapter)."""

_BEHAVIOR: dict[str, Any] = {
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


def autoscaler(model: TritonModel) -> dict[str, Any] | None:
    """A HorizontalPodAutoscaler, or None where nothing shall scale.

    No threshold is in it: its metric is the load divided by what one server is for, so that a new threshold is in
    effect for it as soon as for the alerts. Without the metric it leaves the number as it is.
    """
    wanted = model.scaling
    if wanted is None:
        return None
    target = f"{max(1, round(wanted.utilization * 1000))}m"
    return obj(
        model,
        kinds.AUTOSCALER,
        spec={
            "scaleTargetRef": {
                "apiVersion": kinds.DEPLOYMENT.api_version,
                "kind": kinds.DEPLOYMENT.kind,
                "name": model.name,
            },
            "minReplicas": wanted.min,
            "maxReplicas": wanted.max,
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
            "behavior": wanted.behavior or _BEHAVIOR,
        },
    )
