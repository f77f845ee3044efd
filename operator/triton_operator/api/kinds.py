"""The Kubernetes kinds that the operator uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import names


@dataclass(frozen=True)
class Kind:
    """A Kubernetes kind and its names in the API.

    - `optional`: whether a cluster may lack the kind, because its CRD belongs to another operator.
    - `marks`: the prefix of the labels and annotations that the kind's controller sets on its objects.
    """

    group: str
    version: str
    kind: str
    plural: str
    optional: bool = False
    marks: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True)
class NewerField:
    """A field that older versions of a CRD, or of Kubernetes, don't know. They refuse an object with it.

    Or a value of a field that they know.

    - `path`: without places in lists, such as spec.groups.rules.keep_firing_for.
    - `since`: the first version that knows it.
    - `left_out`: the path of what the object does without then: spec.a, or spec.b[c] for the items of the list b that
      have c. "" if it is to be refused, because it would do harm without the field, or because the user wants it.
    - `value`, `instead`: the value that they refuse, and the one that the object has then; None if they don't know the
      field.
    - `means`: what follows for the user, as the rest of a sentence.
    """

    path: str
    since: str
    left_out: str = ""
    value: int | None = None
    instead: int | None = None
    means: str = ""

    @property
    def is_dispensable(self) -> bool:
        return bool(self.left_out) or self.instead is not None

    @property
    def loss(self) -> str:
        """Returns how the object differs without the field, as the rest of a sentence about the object."""
        if self.instead is None:
            return f"is without {self.left_out}"
        return f"has {self.instead} instead of {self.value} in {self.path}"

    @property
    def why(self) -> str:
        """Returns why a cluster refuses the field, as the rest of a sentence about the cluster."""
        return f"doesn't know {self.path}" if self.value is None else f"refuses {self.value} in {self.path}"


TRITON_MODEL = Kind(names.GROUP, names.VERSION, names.KIND, names.PLURAL)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", marks="deployment.kubernetes.io/")
SERVICE = Kind("", "v1", "Service", "services")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
DISRUPTION_BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
AUTOSCALER = Kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
POD_MONITOR = Kind("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors", optional=True)
PROMETHEUS_RULE = Kind("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules", optional=True)
SCALED_OBJECT = Kind(
    "keda.sh", "v1alpha1", "ScaledObject", "scaledobjects", optional=True, marks="scaledobject.keda.sh/"
)
HTTP_ROUTE = Kind("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes", optional=True)
GRPC_ROUTE = Kind("gateway.networking.k8s.io", "v1", "GRPCRoute", "grpcroutes", optional=True)
BACKEND_TRAFFIC_POLICY = Kind(
    "gateway.envoyproxy.io", "v1alpha1", "BackendTrafficPolicy", "backendtrafficpolicies", optional=True
)
"""Envoy Gateway's."""
SECURITY_CONTEXT_CONSTRAINTS = Kind(
    "security.openshift.io", "v1", "SecurityContextConstraints", "securitycontextconstraints", optional=True
)
"""OpenShift's. The operator reads none of them; that the kind exists says that the cluster is an OpenShift."""
POD = Kind("", "v1", "Pod", "pods")
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets")
RESERVED_PREFIXES = (f"{names.GROUP}/", DEPLOYMENT.marks, SCALED_OBJECT.marks)
"""Labels and annotations that the operator and other controllers set on the children. With another value from the spec,
both would write the object again and again."""


def is_reserved(key: str) -> bool:
    """Returns whether a user may not set the label or annotation `key` on all children."""
    return key in names.RESERVED_KEYS or key.startswith(RESERVED_PREFIXES)


def is_deleting(obj: Mapping[str, Any]) -> bool:
    """Returns whether an object has a deletion timestamp."""
    return "deletionTimestamp" in obj["metadata"]
