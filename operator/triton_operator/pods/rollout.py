"""How far the pods of a Deployment are on the way to its current pod template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .pod import Pod


def desired_replicas(deployment: Mapping[str, Any] | None) -> int:
    """Returns the Deployment's desired number of servers."""
    return int((deployment or {}).get("spec", {}).get("replicas", 1))


def refused_pods(deployment: Mapping[str, Any] | None) -> str | None:
    """Returns why the API server refuses the Deployment's pods, such as a quota; None if it doesn't."""
    conditions = (deployment or {}).get("status", {}).get("conditions", [])
    failure = next((c for c in conditions if c["type"] == "ReplicaFailure" and c["status"] == "True"), None)
    return None if failure is None else str(failure.get("message", ""))


def is_complete(deployment: Mapping[str, Any], pods: Iterable[Pod], template: str) -> bool:
    """Returns whether all servers are ready and have the pod template with this hash."""
    generation: int = deployment.get("status", {}).get("observedGeneration", 0)
    living = [pod for pod in pods if pod.is_alive]
    return (
        generation >= deployment["metadata"].get("generation", 0)
        and len(living) == desired_replicas(deployment)
        and all(pod.is_ready and pod.is_current(template) for pod in living)
    )
