"""The names that users, the API server and the operator have in common."""

from __future__ import annotations

GROUP = "tritonoperator.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "TritonModel"
PLURAL = "tritonmodels"

FIELD_MANAGER = "triton-operator"
"""The one manager under which the operator applies; what it owns is read back from managedFields."""

HANDOVER_MANAGER = "triton-operator-handover"
"""Holds a field's value for the moment between the operator's letting go and its next owner's first write."""

METRICS_JOB = "triton-operator-metrics"
"""The label `job` of the operator's own metrics: the name of its Service, as a ServiceMonitor has it."""

LABEL_NAMESPACE = "kubernetes.io/metadata.name"
"""The name of a namespace, which Kubernetes puts among its labels."""
LABEL_NAME = "app.kubernetes.io/name"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_SELECTOR = f"{LABEL_MANAGED_BY}={FIELD_MANAGER}"
UNMANAGED_SELECTOR = f"{LABEL_MANAGED_BY}!={FIELD_MANAGER}"
"""Also objects that have no such label."""

ANNOTATION_TEMPLATE = f"{GROUP}/template-hash"
"""On pods and on the Deployment: which rendering of the pod template this is."""
ANNOTATION_TOOLS_IMAGE = f"{GROUP}/tools-image"
ANNOTATION_DELIVERY = f"{GROUP}/delivery"
ANNOTATION_SPEC = f"{GROUP}/spec-hash"
ANNOTATION_POD_TEMPLATE = f"{GROUP}/pod-template"
"""On the Deployment: what the user asks of the pods, and the template that was rendered from it (packed)."""
ANNOTATION_RESTARTED = "kubectl.kubernetes.io/restartedAt"
"""On pods, as `kubectl rollout restart` has it."""

PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}

CONTAINER_TOOLS = "tools"
CONTAINER_FETCH = "fetch"
CONTAINER_CHECK = "check"
CONTAINER_SERVER = "triton"

NAME_MAX = 54
"""Service names end at 63 characters, and the headless one appends `-headless`."""


def selector(name: str) -> dict[str, str]:
    """Labels that pick out the pods of the TritonModel `name`; immutable on the Deployment."""
    return {LABEL_NAME: "triton", LABEL_INSTANCE: name}


def labels(name: str) -> dict[str, str]:
    """Labels that every object made for the TritonModel `name` carries."""
    return {**selector(name), LABEL_MANAGED_BY: FIELD_MANAGER}
