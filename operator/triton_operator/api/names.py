"""Names that the API server, users and the operator share."""

from __future__ import annotations

from collections.abc import Mapping

GROUP = "tritonoperator.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "TritonModel"
PLURAL = "tritonmodels"

FIELD_MANAGER = "triton-operator"
"""The field manager of the operator's applies."""

HANDOVER_MANAGER = "triton-operator-handover"
"""The field manager that owns a field after the operator stops writing it, until another client writes it."""

METRICS_JOB = "triton-operator-metrics"
"""The label `job` of the operator's own metrics: the name of its Service, as a ServiceMonitor sets it."""

SAMPLE_LIMIT = 10_000
"""Maximum number of samples of one scrape of a server. Triton has about 20 for each version of a model, and 60 with all
summaries."""
RUNBOOKS = "https://github.com/triton-operator/triton-operator/blob/main/docs/runbooks"
"""Default base URL of the runbooks."""
PROMETHEUS_NAMESPACE = "monitoring"
"""Default namespace of the Prometheus resources that the operator queries."""

LABEL_NAMESPACE = "kubernetes.io/metadata.name"
"""Kubernetes sets this label of each namespace to the namespace's name."""
LABEL_MODEL = f"{GROUP}/model"
"""The name of the TritonModel that an object or a pod belongs to. Selectors use only this label."""
LABEL_GROUP = f"{GROUP}/group"
"""The name of the group that a Deployment and its pods belong to. Those that every TritonModel has lack it."""
CANARY = "canary"
"""The name of the group of spec.canary."""
LABEL_NAME = "app.kubernetes.io/name"
_NAME = "tritonmodel"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_SELECTOR = f"{LABEL_MANAGED_BY}={FIELD_MANAGER}"
UNMANAGED_SELECTOR = f"{LABEL_MANAGED_BY}!={FIELD_MANAGER}"
"""Also selects objects without this label."""
RESERVED_KEYS = (LABEL_NAME, LABEL_MANAGED_BY)

ANNOTATION_TEMPLATE = f"{GROUP}/template-hash"
"""Hash of the pod template, on pods and on the Deployment."""
ANNOTATION_DELIVERY = f"{GROUP}/delivery"
ANNOTATION_SPEC = f"{GROUP}/spec-hash"
ANNOTATION_POD_TEMPLATE = f"{GROUP}/pod-template"
"""On the Deployment: hash of the spec fields that concern pods, and the compressed pod template made from them."""
LABEL_KEPT = f"{GROUP}/kept-template"
"""On the Deployment: hash of that pod template. It is a label, because a user who may write only `deployments/status`
can set annotations there, but no labels."""
ANNOTATION_CALIBRATION = f"{GROUP}/calibration"
"""On the TritonModel: the last result of `kubectl triton calibrate` that was applied, as JSON."""
CALIBRATION_MAX = 4096
"""Maximum number of characters of that annotation."""
ANNOTATION_MEMORY = f"{GROUP}/replaced-before-memory-limit"
"""On pods: when the servers were last replaced because of spec.memoryGrowth, and for which of them."""
ANNOTATION_REPLACED = f"{GROUP}/replaced-for"
"""On pods: the hash of the models of spec.server.loadModels for which the servers were replaced, because one of them
stayed loading."""
ANNOTATION_RESTARTED = f"{GROUP}/restarted-at"
"""On pods: spec.rollout.restartedAt. It isn't that of `kubectl rollout restart`, which the operator would set back."""

PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}
ANSWERS = "answers"
ANSWERS_PORT = 8010
"""The port of CONTAINER_ANSWERS, and its name."""

LATENCY = "latency"
LATENCY_PORT = 8011
"""The port of CONTAINER_LATENCY, and its name."""

PROCESSES = "processes"
PROCESSES_PORT = 8012
"""The port of CONTAINER_PROCESSES, and its name."""

CONTAINER_TOOLS = "tools"
CONTAINER_FETCH = "fetch"
CONTAINER_CHECK = "check"
CONTAINER_SERVER = "triton"
CONTAINER_ANSWERS = "compare-answers"
"""In the pods of a canary with comparePercent only."""
CONTAINER_LATENCY = "measure-latency"
"""With spec.monitoring.latency only."""
CONTAINER_PROCESSES = "show-processes"
"""With spec.monitoring.processes only."""

NAME_MAX = 54
"""Service names have at most 63 characters, and the headless Service appends `-headless`."""


def selector(name: str, group: str = "") -> dict[str, str]:
    """Returns the labels that select the pods of the TritonModel `name`: of all groups, or of this one."""
    return {LABEL_MODEL: name, **of_group(group)}


def of_group(group: str) -> dict[str, str]:
    """Returns the labels by which the Deployment and the pods of a group differ from those of other groups."""
    return {LABEL_GROUP: group} if group else {}


def deployment(name: str, group: str = "") -> str:
    """Returns the name of the Deployment of a group of servers of the TritonModel `name`.

    It is also that of a named group's Service.
    """
    return f"{name}-{group}" if group else name


def as_query(selector: Mapping[str, str]) -> str:
    """Returns `selector` in the form of the API server's query parameter `labelSelector`."""
    return ",".join(f"{key}={value}" for key, value in selector.items())


def labels(name: str) -> dict[str, str]:
    """Returns the labels of all children and pods of the TritonModel `name`."""
    return {LABEL_NAME: _NAME, **selector(name), LABEL_MANAGED_BY: FIELD_MANAGER}


def labels_of_pods(name: str, group: str) -> dict[str, str]:
    """Returns the labels of the pods of a group of the TritonModel `name`.

    The label with the application's name differs, so that a Service can select those of the group without a name: they
    have had it since the first version, and no selector can say that a label is missing.
    """
    return {**labels(name), **of_group(group), **({LABEL_NAME: f"{_NAME}-{group}"} if group else {})}


def selector_without_groups(name: str) -> dict[str, str]:
    """Returns the labels that select the pods of the TritonModel `name` that are of no named group."""
    return {**selector(name), LABEL_NAME: _NAME}


def of_children(name: str) -> frozenset[str]:
    """Returns the names that the children of the TritonModel `name` may have."""
    return frozenset({name, f"{name}-headless", account(name)})


def account(name: str) -> str:
    """Returns the name of the servers' ServiceAccount for the TritonModel `name`.

    Without the prefix, a TritonModel could get the RoleBindings or the cloud identity of an existing account with the
    same name. Earlier versions used `name` without a prefix.
    """
    return f"tritonmodel-{name}"
