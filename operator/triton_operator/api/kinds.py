"""The Kubernetes kinds that the operator deals with, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import names


@dataclass(frozen=True)
class Kind:
    """A Kubernetes kind, by the names under which it is asked for."""

    group: str
    version: str
    kind: str
    plural: str
    optional: bool = False
    """Whether a cluster may lack it, because its CRD comes with another operator."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


TRITON_MODEL = Kind(names.GROUP, names.VERSION, names.KIND, names.PLURAL)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
SERVICE = Kind("", "v1", "Service", "services")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
DISRUPTION_BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
AUTOSCALER = Kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
POD_MONITOR = Kind("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors", optional=True)
PROMETHEUS_RULE = Kind("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules", optional=True)
POD = Kind("", "v1", "Pod", "pods")
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets")


def is_deleting(obj: Mapping[str, Any]) -> bool:
    """Whether an object is deleted already, and there only for what it waits for."""
    return "deletionTimestamp" in obj["metadata"]
