"""What scales the servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.status import AUTOSCALER_ACTIVE
from triton_operator.api.types import TritonModel

from .child import Child
from .choices import Choices
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


def autoscalers(model: TritonModel, _: Choices) -> list[dict[str, Any]]:
    """A HorizontalPodAutoscaler, where something shall scale.

    No threshold is in it: its metric is the load divided by what one server is for, so that a new threshold is in
    effect for it as soon as for the alerts. Without the metric it leaves the number as it is.
    """
    wanted = model.scaling
    if wanted is None:
        return []
    target = f"{max(1, round(wanted.utilization * 1000))}m"
    scaler = obj(
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
    return [scaler]


def _status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Not its view of the metric, which changes every 15 s."""
    return {k: status[k] for k in ("conditions",) if k in status}


CHILD = Child(
    kinds.AUTOSCALER,
    autoscalers,
    condition=AUTOSCALER_ACTIVE,
    unchecked="spec.autoscaling.behavior gets there as it is",
    status=_status,
)
