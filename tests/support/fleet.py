"""TritonModels with the status that the operator writes, their autoscalers, and results of Prometheus."""

from __future__ import annotations

from typing import Any

from triton_operator.api import names

from . import gen

Object = dict[str, Any]
SINCE = "2026-01-01T00:00:00Z"


def status(
    ready: str = "True", reason: str = "EntrypointAnswers", message: str = "detection answers", **more: Any
) -> gen.Modifier:
    """Sets the status of a TritonModel whose rollout is complete. `more`: other fields of the status."""

    def modify(obj: Object) -> None:
        conditions = [
            {"type": "Ready", "status": ready, "reason": reason, "message": message, "lastTransitionTime": SINCE},
            {"type": "Progressing", "status": "False", "reason": "Complete",
             "message": "every server runs the current spec", "lastTransitionTime": SINCE},
        ]  # fmt: skip
        obj["status"] = {
            "observedGeneration": obj["metadata"]["generation"], "conditions": conditions, "replicas": 2,
            "readyReplicas": 2, "maxQps": "80", "entrypoint": "detection", "loaded": "2/2",
            "models": [{"name": n, "version": "1", "state": "READY", "pods": "2/2"} for n in ("detection", "infer")],
            "thresholds": [{"kind": "max-qps", "value": "80", "source": "tritonoperator.io/max-qps", "since": SINCE}],
            **more,
        }  # fmt: skip

    return modify


def condition(kind: str, value: str, reason: str, message: str = "m") -> gen.Modifier:
    """Sets one condition of a TritonModel, after `status`."""

    def modify(obj: Object) -> None:
        conditions = [c for c in obj["status"]["conditions"] if c["type"] != kind]
        entry = {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": SINCE}
        obj["status"]["conditions"] = [*conditions, entry]

    return modify


def autoscaler(name: str, current: int, desired: int, average: str = "") -> Object:
    """Returns a HorizontalPodAutoscaler with the status that its controller writes."""
    metric = {"type": "Object", "object": {"current": {"averageValue": average, "value": "0"}, "metric": {"name": "m"}}}
    status = {"currentReplicas": current, "desiredReplicas": desired, "currentMetrics": [metric] if average else None}
    metadata = {"name": name, "namespace": gen.NAMESPACE, "labels": {names.LABEL_MODEL: name}}
    return {"kind": "HorizontalPodAutoscaler", "metadata": metadata, "status": status}


def series(value: str, name: str = gen.NAME, **labels: str) -> Object:
    """Returns one series of a query result."""
    return {
        "metric": {"namespace": gen.NAMESPACE, "tritonmodel": name, **labels},
        "value": [1767225600.0, value],
    }


def event(reason: str, message: str, second: int = 0, kind: str = "Normal") -> Object:
    """Returns an Event as the API server's core/v1 shows it."""
    time = f"2026-01-01T00:00:{second:02d}Z"
    metadata = {"name": "e", "namespace": gen.NAMESPACE, "creationTimestamp": time}
    return {"metadata": metadata, "type": kind, "reason": reason, "message": message, "lastTimestamp": time}
