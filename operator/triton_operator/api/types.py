"""What users write: the spec of a TritonModel. The CRD is made from these types (`crd.py`).

The texts below the fields are what `kubectl explain` prints.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from . import names
from .fields import (
    NO_SPACE,
    Base,
    EnvVar,
    IntOrPercent,
    LabelValue,
    ModelName,
    ModelToLoad,
    PodSpec,
    Quantity,
    ScalingBehavior,
    config,
    rule,
)
from .network import NetworkPolicy

RESERVED_FLAGS = (
    "model-repository", "model-store", "model-control-mode", "load-model", "repository-poll-secs", "exit-on-error",
    "exit-timeout-secs", "strict-readiness", "http-port", "grpc-port", "metrics-port", "allow-http", "allow-grpc",
    "allow-metrics", "http-address", "grpc-address", "metrics-address", "log-verbose",
)  # fmt: skip
"""Flags of tritonserver that the operator sets or relies on, and so are refused in `server.args`. So are their
beginnings: tritonserver completes a flag that is cut short (getopt_long)."""
ON_IPV6 = "--http-address=ipv6:[::]"
"""The one value of a reserved flag that is let in: Triton listens on IPv4 or on IPv6, and by default on IPv4 (gRPC on
both). It must listen on every address of the pod, for probes and scrapes."""
_RESERVED = (
    "args has a flag that the operator sets itself (repository, ports, model control, readiness, exit, verbosity), "
    "whole or cut short: use the fields of spec.server, spec.modelImage and spec.rollout"
)


def is_reserved(argument: str) -> bool:
    """Whether tritonserver may take `argument` as one of RESERVED_FLAGS."""
    name = argument.split("=")[0]
    if argument == ON_IPV6:
        return False
    return name.startswith("--") and any(f"--{flag}".startswith(name) for flag in RESERVED_FLAGS)


def _argument(argument: str) -> str:
    if is_reserved(argument):
        raise ValueError(_RESERVED)
    return argument


class LocalObjectReference(Base):
    """The name of an object in the TritonModel's own namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the Secret."""


class ModelImage(Base):
    """The OCI image that carries the model repository."""

    reference: Annotated[str, Field(min_length=1, max_length=1024, pattern=NO_SPACE)]
    """Image reference, by tag or (better: it can't change under you) by digest, e.g.
    registry.example.com/team/detection:v3 or registry.example.com/team/detection@sha256:…"""
    path: Annotated[str, Field(pattern=r"^/[^ \t-\r]*$", max_length=1024)] = "/models"
    """Directory in the image that holds the models, one folder a model. An image FROM scratch is fine."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When the image is pulled. Kubernetes' default: Always for the tag latest, else IfNotPresent."""
    pull_secrets: Annotated[list[LocalObjectReference], Field(max_length=16)] = []
    """Secrets of type kubernetes.io/dockerconfigjson for this image and the server's."""
    delivery: Literal["Auto", "Copy", "ImageVolume"] = "Auto"
    """How the repository reaches the server. Copy: an init container copies it into the pod, which works
    everywhere. ImageVolume: it is mounted read-only without a copy, which needs Kubernetes 1.35 with
    containerd 2.1 or CRI-O 1.33 (or the ImageVolume feature gate). Auto: the best that the cluster offered
    when this TritonModel was first deployed; it doesn't change by itself afterwards."""


class ResourceRequirements(Base):
    """Compute resources, as in a container."""

    model_config = config(
        rule(
            "!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || "
            "!quantity(string(self.requests[k])).isGreaterThan(quantity(string(self.limits[k]))))",
            "a request is above its limit: lower the request or raise the limit",
        ),
        rule(
            "!has(self.requests) || self.requests.all(k, !k.contains('/') || (has(self.limits) && k in self.limits))",
            "an extended resource such as nvidia.com/gpu must be set in limits",
        ),
    )

    limits: Annotated[dict[str, Quantity], Field(max_length=32)] | None = None
    """Upper bounds, e.g. cpu: 4, memory: 8Gi, nvidia.com/gpu: 1. Accelerators of any vendor go here."""
    requests: Annotated[dict[str, Quantity], Field(max_length=32)] | None = None
    """What the scheduler sets aside. Default: the limits."""


class Server(Base):
    """The Triton server."""

    model_config = config(
        rule(
            "self.modelControl == 'explicit' ? (has(self.loadModels) && size(self.loadModels) > 0) "
            ": (!has(self.loadModels) || size(self.loadModels) == 0)",
            "loadModels goes with modelControl: explicit, which needs at least one model there; "
            "with modelControl: none every model of the repository is loaded",
        ),
        rule(
            f"!has(self.args) || self.args.all(a, a == '{ON_IPV6}' || !a.startsWith('--') || "
            f"!{[f'--{flag}' for flag in RESERVED_FLAGS]}.exists(f, f.startsWith(a.find('^--[^=]*'))))",
            _RESERVED,
        ),
        rule(
            "!has(self.args) || self.args.all(a, !a.contains('counter_latencies=false'))",
            "args must not contain counter_latencies=false: it freezes every counter of Triton's metrics",
        ),
    )

    image: Annotated[str, Field(min_length=1, max_length=1024, pattern=NO_SPACE)] = (
        "nvcr.io/nvidia/tritonserver:24.10-py3"
    )
    """Image of the Triton server, with the Python packages that your models need."""
    resources: ResourceRequirements = ResourceRequirements()
    """CPU, memory and accelerators of each server."""
    args: Annotated[list[Annotated[str, Field(max_length=4096), AfterValidator(_argument)]], Field(max_length=64)] = []
    """More flags for tritonserver, e.g. --cache-config=local,size=104857600. Where pods have IPv6 addresses only:
    --http-address=ipv6:[::]"""
    env: Annotated[list[EnvVar], Field(max_length=128)] = []
    """Environment variables, as in a container (name with value or valueFrom)."""
    shared_memory: Quantity | None = None
    """Size of /dev/shm, which Python models use to pass tensors. Default: half of the memory limit, or 1Gi
    where there is none. What is used counts against the memory limit."""
    model_control: Literal["none", "explicit"] = "none"
    """none: all models of the repository are loaded at start. explicit: those of loadModels are, and others
    can be loaded and unloaded over Triton's API."""
    load_models: Annotated[
        list[ModelToLoad], Field(max_length=512, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = []
    """Models to load at start, with modelControl: explicit. What an ensemble needs is loaded with it."""
    log_verbosity: Annotated[int, Field(ge=0, le=10)] = 0
    """Triton's verbosity: 0 is quiet, 1 logs each request."""


class Disruption(Base):
    """What node drains may take away at once. Applies with more than one replica."""

    max_unavailable: IntOrPercent = 1
    """Pods that may be away at once, as a number or a percentage. 0 blocks the drain of their nodes, and needs the
    right to create PodDisruptionBudgets."""


class Rollout(Base):
    """How a change reaches the pods."""

    model_config = config(
        rule(
            "!(has(self.maxSurge) && has(self.maxUnavailable) && string(self.maxSurge) in ['0', '0%'] "
            "&& string(self.maxUnavailable) in ['0', '0%'])",
            "maxSurge and maxUnavailable can't both be 0: no pod could ever be replaced",
        )
    )

    max_surge: IntOrPercent | None = None
    """Pods above the wanted number during a rollout. Default: 1, or 0 where the servers hold accelerators:
    a rollout that waits for a spare GPU would wait for ever."""
    max_unavailable: IntOrPercent | None = None
    """Pods below the wanted number during a rollout. Default: 0, or 1 where maxSurge is 0."""
    startup_seconds: Annotated[int, Field(ge=10, le=86400)] = 600
    """How long a server may take to load its models before it is restarted."""
    drain_seconds: Annotated[int, Field(ge=0, le=3600)] = 15
    """How long a server that is going away still takes new requests, until every client and load balancer
    has heard of it."""
    exit_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """How long requests that are being computed may then take to finish."""
    restarted_at: Annotated[str, Field(max_length=64)] | None = None
    """Another value (the time, as a rule) restarts the servers, as `kubectl rollout restart` does, and takes the pod
    template of the operator's present version."""


class Autoscaling(Base):
    """Scales the servers by their load: an autoscaling/v2 HorizontalPodAutoscaler is made from it."""

    model_config = config(rule("self.min <= self.max", "min is above max: lower min or raise max"))

    engine: Literal["HPA", "None"] = "HPA"
    """HPA: a HorizontalPodAutoscaler, whose metric comes through prometheus-adapter. None: nothing scales; the
    settings stay for later."""
    min: Annotated[int, Field(ge=1, le=10000)] = 1
    """The fewest servers."""
    max: Annotated[int, Field(ge=1, le=10000)]
    """The most servers. Without the annotation max-qps-per-replica a server is for max-qps divided by this."""
    utilization: Annotated[float, Field(gt=0, le=1)] = 0.75
    """Which part of max-qps-per-replica a server shall carry. Below 1, so that servers come before the limit."""
    predict: bool = False
    """Scale for the load that the last five minutes promise for in two minutes, at most twice the present one.
    Only ever upwards."""
    behavior: ScalingBehavior | None = None
    """How fast it goes, as in a HorizontalPodAutoscaler (see kubectl explain hpa.spec.behavior). Default: up as fast
    as doubling every 15 s, down by at most a quarter a minute, and only after 5 minutes of less load."""


_SECONDS = {"ge": 1, "le": 300}


class Monitoring(Base):
    """What Prometheus is told: which servers to scrape, what to record, when to alert. Needs the CRDs of
    prometheus-operator; without them everything else works."""

    model_config = config(
        rule(
            "!has(self.alertLabels) || self.alertLabels.all(k, k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$') && "
            "!(k in ['__name__', 'alertname', 'namespace', 'tritonmodel', 'model', 'version', 'severity']))",
            "alertLabels must have names of letters, digits and '_', other than __name__, alertname, namespace, "
            "tritonmodel, model, version and severity, which the alerts have themselves",
        ),
    )

    enabled: bool = True
    """Whether a PodMonitor and a PrometheusRule are made."""
    alerts: bool = True
    """Whether the PrometheusRule has alerts, or only recording rules."""
    labels: Annotated[dict[str, LabelValue], Field(max_length=32)] = {}
    """Labels of both objects, so that your Prometheus selects them, e.g. release: kube-prometheus-stack."""
    alert_labels: Annotated[dict[str, Annotated[str, Field(max_length=253)]], Field(max_length=32)] = {}
    """Labels of every alert, to route it to a receiver, e.g. team: vision."""
    scrape_seconds: Annotated[int, Field(**_SECONDS)] = 10
    """How often the servers' metrics are scraped. Rates need several samples a minute."""
    evaluation_seconds: Annotated[int, Field(**_SECONDS)] = 10
    """How often the rules are evaluated. A new threshold is in effect after a scrape of the operator (5 s) and this."""
    objective: Annotated[str, Field(pattern=r"^([5-9][0-9]|99\.[0-9]{1,4})$", max_length=8)] = "99.9"
    """Percentage of requests that shall succeed. The burn-rate alerts follow from it."""
    queue_milliseconds: Annotated[int, Field(ge=1, le=600000)] = 100
    """How long requests may wait in a model's queue, on average over a minute, before an alert."""
    token_counter: Annotated[str, Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$", max_length=253)] | None = None
    """Counter among the metrics of the server that counts tokens, e.g. a custom metric of your Python model. The
    annotation max-tps needs it."""


_ANNOTATIONS = 64 << 10


class PodMetadata(Base):
    """Labels and annotations."""

    model_config = config(
        rule(
            "!has(self.annotations) || self.annotations.map(k, size(k) + size(self.annotations[k])).sum() "
            f"<= {_ANNOTATIONS}",
            f"annotations may have {_ANNOTATIONS} characters in all, names and values together",
        )
    )

    labels: Annotated[dict[str, LabelValue], Field(max_length=64)] = {}
    """Labels of the pods, beside the operator's own."""
    annotations: Annotated[dict[str, Annotated[str, Field(max_length=16384)]], Field(max_length=64)] = {}
    """Annotations of the pods, beside the operator's own."""


class PodTemplate(Base):
    """Anything else of a pod, merged last."""

    metadata: PodMetadata = PodMetadata()
    """Labels and annotations of the pods."""
    spec: PodSpec = {}
    """A part of a PodSpec (see kubectl explain pod.spec), e.g. nodeSelector, tolerations, priorityClassName,
    volumes. Lists with names, such as containers and env, merge by name: the server's container is `triton`."""


class TritonModelSpec(Base):
    """Which model repository image, on which Triton, under which load."""

    model_config = config(
        rule(
            "has(self.entrypoint) || self.server.modelControl == 'none' || size(self.server.loadModels) == 1",
            "entrypoint is needed where server.loadModels names several models: say which of them clients call",
        ),
        rule(
            "!has(self.replicas) || !has(self.autoscaling) || self.autoscaling.engine == 'None'",
            "replicas and autoscaling exclude each other: remove replicas, or set autoscaling.engine to None",
        ),
    )

    model_image: ModelImage
    """The OCI image that carries the model repository."""
    entrypoint: ModelName | None = None
    """The model that clients call; with pre- and post-processing it is the ensemble. Default: the only
    ensemble of the repository, or its only model. Set it: readiness then follows this model alone, instead
    of all models of the server."""
    server: Server = Server()
    """The Triton server."""
    replicas: Annotated[int, Field(ge=0, le=10000)] | None = None
    """Number of servers. Leave it out where something else scales the Deployment: the operator then never
    writes the number. Without it and without an autoscaler there is one."""
    autoscaling: Autoscaling | None = None
    """Scales the servers by their load. Leave replicas out with it."""
    monitoring: Monitoring = Monitoring()
    """What Prometheus is told."""
    network_policy: NetworkPolicy | None = None
    """Who may connect to the servers, and where these may connect to. Default: whatever the cluster allows; with
    networkPolicy: {} the strict defaults."""
    disruption: Disruption = Disruption()
    """What node drains may take away at once."""
    rollout: Rollout = Rollout()
    """How a change reaches the pods."""
    pod_template: PodTemplate = PodTemplate()
    """Anything else of a pod, merged last."""


class Metadata(BaseModel):
    """The part of an object's metadata that the operator uses."""

    model_config = config()

    name: str
    namespace: str
    uid: str = ""
    generation: int = 0
    annotations: dict[str, str] = {}


class TritonModel(Base):
    """A model repository served by Triton."""

    metadata: Metadata
    spec: TritonModelSpec
    """What is wanted."""

    @property
    def scaling(self) -> Autoscaling | None:
        """The autoscaler that is wanted; None where nothing shall scale."""
        wanted = self.spec.autoscaling
        return wanted if wanted is not None and wanted.engine != "None" else None

    @property
    def monitoring_labels(self) -> dict[str, str]:
        """Labels of what is made for Prometheus, which it selects by."""
        return {**self.spec.monitoring.labels, **names.labels(self.name)}

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace
