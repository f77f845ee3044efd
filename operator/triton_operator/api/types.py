"""The spec of a TritonModel. The CRD is generated from these types (`crd.py`).

`kubectl explain` prints the texts below the fields.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, Field

from . import kinds, names, server_access
from .canary import MAX_BY_SERVERS, Canary
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
    refused_if_new,
    rule,
)
from .network import NetworkPolicy
from .overrides import ModelOverrides
from .route import Route

RESERVED_FLAGS = (
    "model-repository", "model-store", "model-control-mode", "load-model", "repository-poll-secs", "exit-on-error",
    "exit-timeout-secs", "strict-readiness", "http-port", "grpc-port", "metrics-port", "allow-http", "allow-grpc",
    "allow-metrics", "http-address", "grpc-address", "metrics-address", "log-verbose",
)  # fmt: skip
"""Flags of tritonserver that the operator sets or relies on. `server.args` may not contain them or their prefixes:
tritonserver completes abbreviated flags (getopt_long)."""
ON_IPV6 = "--http-address=ipv6:[::]"
"""The only allowed value of a reserved flag. By default Triton's HTTP server listens on IPv4 only (gRPC on both). It
must listen on every address of the pod, for probes and scrapes."""
ALERTS_OWN_LABELS = (
    "__name__", "alertname", "namespace", "tritonmodel", "model", "version", "kind", "reason", "pod", "severity",
)  # fmt: skip
"""Labels that alerts have themselves. `monitoring.alertLabels` may not contain them."""
_RESERVED = (
    "args has a flag, or the abbreviation of a flag, that the operator sets (repository, ports, model control, "
    "readiness, exit, verbosity): use the fields of spec.server, spec.modelImage and spec.rollout"
)


def is_reserved(argument: str) -> bool:
    """Returns whether tritonserver may take `argument` as one of RESERVED_FLAGS."""
    name = argument.split("=")[0]
    if argument == ON_IPV6:
        return False
    return name.startswith("--") and any(f"--{flag}".startswith(name) for flag in RESERVED_FLAGS)


def _first(refused: str) -> str:
    """Returns the CEL expression for the flag of the first item for which `refused` is true, without its value.

    A value may be a secret.
    """
    return f"self.args.filter(a, {refused})[0].find('^[^= ]*') + ': '"


_IS_RESERVED = (
    f"a != '{ON_IPV6}' && a.startsWith('--') && [a.find('^--[^=]*')].exists(name, "
    f"{[f'--{flag}' for flag in RESERVED_FLAGS]}.exists(f, f.startsWith(name)))"
)
# histogram_latencies: from 2.52 on.
_METRICS_KEYS = "(counter|histogram|summary)_latencies|summary_quantiles"
_METRICS_FLAG = "--metrics-c[a-z]*="
_LIKE_METRICS_KEYS = "(sum+ary|counters?|custom|histograms?)_[a-z_]*="
"""A misspelled key in an item of its own, where its flag isn't visible."""
_OF_HEALTH = "([a-z-]+,)*health(,[a-z-]+)*:"
_HEALTH = "(?:(?!health[,:])[a-z-]+,)*health(?:,[a-z-]+)*:"
"""The same for Python, whose search would take the square of the number of items: only the first item health counts."""
_PROBES = "the probes of the pod need the health endpoints without a key: remove health"
_HTTP_FLAG, _GRPC_FLAG = "^--http-r[a-z-]*$", "^--grpc-r[a-z-]*$"
_REFUSED = (
    ("a.contains('counter_latencies=false')", re.compile("counter_latencies=false"),
     "counter_latencies=false stops all counters of Triton's metrics: remove it"),
    (f"a.matches('^({_METRICS_FLAG}|{_LIKE_METRICS_KEYS})') && !a.matches('^({_METRICS_FLAG})?({_METRICS_KEYS})=')",
     re.compile(f"^(?!({_METRICS_FLAG})?({_METRICS_KEYS})=)({_METRICS_FLAG}|{_LIKE_METRICS_KEYS})"),
     "tritonserver has no such key of its metrics: use counter_latencies, histogram_latencies, summary_latencies or "
     "summary_quantiles"),
    ("a.matches('^--[a-z0-9-]+ ')", re.compile("^--[a-z0-9-]+ "),
     "a flag and its value are one item: write --flag=value, or two items"),
    ("a.matches('^(/[^=]*/)?tritonserver( |$)')", re.compile("^(/[^=]*/)?tritonserver( |$)"),
     "args contains flags only: remove the program, which the operator starts"),
    (f"a.matches('^--http-r[a-z-]*={_OF_HEALTH}')", re.compile(f"^--http-r[a-z-]*={_HEALTH}"), _PROBES),
)  # fmt: skip
"""What an item of args may not be, in CEL and in Python, and why."""


def _argument(argument: str) -> str:
    flag = re.split("[= ]", argument, maxsplit=1)[0]
    if is_reserved(argument):
        raise ValueError(f"{flag}: {_RESERVED}")
    for _, pattern, why in _REFUSED:
        if pattern.search(argument):
            raise ValueError(f"{flag}: {why}")
    return argument


def _arguments(arguments: list[str]) -> list[str]:
    """Refuses a key for the health endpoints in an item of its own. With gRPC's flag, too, it may be of that one."""
    http, grpc, health = (
        next((argument for argument in arguments if re.search(pattern, argument)), "")
        for pattern in (_HTTP_FLAG, _GRPC_FLAG, f"^{_HEALTH}")
    )
    if http and health and not grpc:
        raise ValueError(f"{http}: {_PROBES}")
    return arguments


class LocalObjectReference(Base):
    """The name of an object in the TritonModel's namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the Secret."""


class ModelImage(Base):
    """The OCI image that carries the model repository."""

    reference: Annotated[str, Field(min_length=1, max_length=1024, pattern=NO_SPACE)]
    """Image reference with a tag or a digest. A digest is better, because it can't change. E.g.
    registry.example.com/team/detection:v3 or registry.example.com/team/detection@sha256:…"""
    path: Annotated[str, Field(pattern=r"^/[^ \t-\r]*$", max_length=1024)] = "/models"
    """Directory in the image that contains the models, one folder for each model. The image may be FROM scratch."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When to pull the image. Default (from Kubernetes): Always for the tag latest, otherwise IfNotPresent."""
    pull_secrets: Annotated[list[LocalObjectReference], Field(max_length=16)] = []
    """Secrets of type kubernetes.io/dockerconfigjson for this image and the server image."""
    delivery: Literal["Auto", "Copy", "ImageVolume"] = "Auto"
    """How the repository gets into the pod. Copy: an init container copies it, which works in every cluster.
    ImageVolume: Kubernetes mounts the image read-only, which needs Kubernetes 1.35 with containerd 2.1 or CRI-O 1.33
    (or the ImageVolume feature gate). Auto: ImageVolume if the cluster supports it when the operator first creates the
    Deployment, otherwise Copy; it doesn't change later by itself."""


_COMPARED = ["cpu", "memory", "ephemeral-storage"]


class ResourceRequirements(Base):
    """Compute resources, as in a container."""

    model_config = config(
        rule(
            # Of all resources it would cost too much: Kubernetes before 1.34 takes each quantity for a string of 3 MiB.
            # The API server compares the others in the Deployment.
            # It evaluates a rule also when a pattern doesn't match, and a long exponent takes it minutes.
            f"!has(self.requests) || !has(self.limits) || {_COMPARED}.all(k, "
            "!(k in self.requests) || !(k in self.limits) || "
            "[self.requests[k], self.limits[k]].exists(q, string(q).matches('[eE].?[0-9]{3}')) || "
            "!quantity(string(self.requests[k])).isGreaterThan(quantity(string(self.limits[k]))))",
            "a request is above its limit: lower the request or raise the limit",
        ),
        rule(
            "!has(self.requests) || self.requests.all(k, !k.contains('/') || (has(self.limits) && k in self.limits))",
            "an extended resource such as nvidia.com/gpu must be set in limits",
        ),
    )

    limits: Annotated[dict[str, Quantity], Field(max_length=32)] | None = None
    """Upper bounds, e.g. cpu: 4, memory: 8Gi, nvidia.com/gpu: 1. Set accelerators of any vendor here."""
    requests: Annotated[dict[str, Quantity], Field(max_length=32)] | None = None
    """Resources that the scheduler reserves. Default: the limits."""


class Server(Base):
    """The Triton server."""

    model_config = config(
        rule(
            "self.modelControl == 'explicit' ? (has(self.loadModels) && size(self.loadModels) > 0) "
            ": (!has(self.loadModels) || size(self.loadModels) == 0)",
            "modelControl: explicit needs at least one model in loadModels; "
            "modelControl: none loads every model, so remove loadModels",
        ),
        *(
            rule(f"!has(self.args) || !self.args.exists(a, {refused})", why, _first(refused))
            for refused, why in ((_IS_RESERVED, _RESERVED), *((refused, why) for refused, _, why in _REFUSED))
        ),
        rule(
            f"!has(self.args) || !self.args.exists(a, a.matches('{_HTTP_FLAG}')) "
            f"|| self.args.exists(a, a.matches('{_GRPC_FLAG}')) "
            f"|| !self.args.exists(a, a.matches('^{_OF_HEALTH}'))",
            _PROBES,
            _first(f"a.matches('{_HTTP_FLAG}')"),
        ),
    )

    image: Annotated[str, Field(min_length=1, max_length=1024, pattern=NO_SPACE)] = (
        "nvcr.io/nvidia/tritonserver:24.10-py3"
    )
    """Image of the Triton server, with the Python packages that your models need."""
    resources: ResourceRequirements = ResourceRequirements()
    """CPU, memory and accelerators of each server."""
    args: Annotated[
        list[Annotated[str, Field(max_length=4096), refused_if_new(_argument)]],
        Field(max_length=64),
        refused_if_new(_arguments),
    ] = []
    """More flags for tritonserver, e.g. --cache-config=local,size=104857600. If pods have only IPv6 addresses, add
    --http-address=ipv6:[::]"""
    env: Annotated[list[EnvVar], Field(max_length=128)] = []
    """Environment variables, as in a container (name with value or valueFrom)."""
    shared_memory: Quantity | None = None
    """Size of /dev/shm, which Python models use to pass tensors. Default: half of the memory limit, or 1Gi without a
    limit. Used shared memory counts against the memory limit."""
    model_control: Literal["none", "explicit"] = "none"
    """none: Triton loads all models of the repository at start. explicit: Triton loads the models in loadModels, and
    clients can load and unload others through Triton's API."""
    load_models: Annotated[
        list[ModelToLoad], Field(max_length=512, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = []
    """Models to load, with modelControl: explicit. Triton loads the steps of an ensemble with it. If entrypoint is set,
    a change reaches the running servers without a restart: each server loads the new models, and then unloads the ones
    that are gone. If a model doesn't load, the servers keep the old ones. A change replaces the servers if args closes
    their API to the operator, by a restricted API or TLS."""
    log_verbosity: Annotated[int, Field(ge=0, le=10)] = 0
    """Triton's verbosity: 0 is quiet, 1 logs each request."""


class Disruption(Base):
    """How many pods node drains may evict at once. Applies with more than one replica."""

    max_unavailable: IntOrPercent = 1
    """Maximum number or percentage of unavailable pods during a drain. 0 blocks the drain of the pods' nodes; to set
    it, the user needs the verb create on poddisruptionbudgets."""


class Service(Base):
    """The Service of the servers."""

    session_affinity: Literal["None", "ClientIP"] = "None"
    """ClientIP: all connections from one IP address go to the same server, until it terminates. For stateful models,
    docs/stateful.md compares it with the headless Service. It doesn't affect the headless Service."""


class Rollout(Base):
    """How the operator replaces the pods after a change, and how they start and stop."""

    model_config = config(
        rule(
            "!(has(self.maxSurge) && has(self.maxUnavailable) && string(self.maxSurge) in ['0', '0%'] "
            "&& string(self.maxUnavailable) in ['0', '0%'])",
            "maxSurge and maxUnavailable can't both be 0, because no pod could be replaced: set one of them to 1",
        )
    )

    max_surge: IntOrPercent | None = None
    """Maximum number of pods above the desired number during a rollout. Default: 1, or 0 if the servers use
    accelerators, because a rollout that needs a spare GPU may never finish."""
    max_unavailable: IntOrPercent | None = None
    """Maximum number of unavailable pods during a rollout. Default: 0, or 1 if maxSurge is 0."""
    startup_seconds: Annotated[int, Field(ge=10, le=86400)] = 600
    """Seconds that a server may take to load its models before Kubernetes restarts it."""
    drain_seconds: Annotated[int, Field(ge=0, le=3600)] = 15
    """Seconds that a terminating server still accepts new requests, until all clients and load balancers use the other
    servers."""
    exit_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """Seconds that requests in progress may then take to finish."""
    restarted_at: Annotated[str, Field(max_length=64)] | None = None
    """A new value (usually the current time) restarts the servers, as `kubectl rollout restart` does. The new pods get
    the pod template of the operator's current version."""


class Autoscaling(Base):
    """Scales the servers by their load, with an autoscaling/v2 HorizontalPodAutoscaler or with KEDA."""

    model_config = config(
        rule("self.min <= self.max", "min is above max: lower min or raise max"),
        rule(
            "self.min > 0 || self.engine in ['HPA', 'KEDA', 'None']",
            "min: 0 doesn't work with engine: Direct, because it counts requests at the servers: set engine to HPA or "
            "KEDA, or min to 1",
        ),
    )

    engine: Literal["HPA", "Direct", "KEDA", "None"] = "HPA"
    """HPA: the operator creates a HorizontalPodAutoscaler, which gets its metric from prometheus-adapter. Direct: in
    addition, the operator reads the servers' request counters every two seconds and adds servers at once, also without
    Prometheus; the HorizontalPodAutoscaler removes them. KEDA: the operator creates a ScaledObject; KEDA reads the load
    from Prometheus and creates the HorizontalPodAutoscaler. Without KEDA in the cluster the number of servers stays.
    None: no autoscaler; the settings are kept but not used."""
    min: Annotated[int, Field(ge=0, le=10000)] = 1
    """Minimum number of servers. 0 needs engine: KEDA, or engine: HPA in a cluster with the feature HPAScaleToZero
    (Kubernetes 1.37; without it one server stays), and the series tritonmodel:arrivals:rate1m of your gateway's
    requests in Prometheus: without a server, no metric of Triton shows that requests arrive. With 0, requests fail
    until the first server has started, so clients must retry. Without the series, one server stays."""
    max: Annotated[int, Field(ge=1, le=10000)]
    """Maximum number of servers. Default of the annotation max-qps-per-replica: max-qps divided by this number."""
    utilization: Annotated[float, Field(gt=0, le=1)] = 0.75
    """Target load of a server, as a fraction of max-qps-per-replica. Below 1, the autoscaler adds servers before
    the load reaches it."""
    predict: bool = False
    """Scale up for the load in two minutes, predicted from the trend of the last five minutes. The predicted load is at
    most twice the current load. The prediction never scales down."""
    behavior: ScalingBehavior | None = None
    """Scaling speed, as in a HorizontalPodAutoscaler (see kubectl explain hpa.spec.behavior). Default: every 15 s at
    most double, or add two if that is more; every minute remove at most 25 %, or one if that is more, and only after 5
    minutes of lower load."""


_SECONDS = {"ge": 1, "le": 300}


_METRIC = r"^[a-zA-Z_:][a-zA-Z0-9_:]*$"


_Metric = Annotated[str, Field(pattern=_METRIC, max_length=253)]


class Streaming(Base):
    """Series of a model that streams its answers, such as a language model.

    Triton's own latency of such a model may end long before the stream. The rules record these series under one name
    each, for dashboards, alerts and kubectl triton top.
    """

    names: Literal["VLLM", "TensorRTLLM"] | None = None
    """The server whose names the series have: Triton's vLLM or TensorRT-LLM backend. The other fields replace a
    name."""
    time_to_first_token: _Metric | None = None
    """Histogram of the seconds from a request to its first response."""
    time_per_token: _Metric | None = None
    """Histogram of the seconds between two responses of a stream."""
    duration: _Metric | None = None
    """Histogram of the seconds from a request to the end of its stream."""
    queue_time: _Metric | None = None
    """Histogram of the seconds that a request waits in the model. Triton's own queue counts beside it."""
    running: _Metric | None = None
    """Gauge of the streams that are open."""
    waiting: _Metric | None = None
    """Gauge of the requests that wait in the model."""
    cache_usage: _Metric | None = None
    """Gauge of the share of the KV cache that is in use, 0 to 1."""
    failed: _Metric | None = None
    """Counter of the streams that failed and that Triton counts as successes: those that end with an error response.
    Not used for an ensemble, because Triton counts a failure of a step as one of the ensemble."""


class LatencyObjective(NamedTuple):
    """A quantile of the requests' times that should be at most `seconds`. `name`: as in the spec, e.g. p99=200ms."""

    name: str
    quantile: str
    seconds: Decimal


_SHORTEST, _LONGEST = "0.1ms", "100s"
_OUTSIDE = f"a time in monitoring.latency must be at least {_SHORTEST} and at most {_LONGEST}, which are measured"


def seconds(time: str) -> Decimal:
    """Returns the seconds of a time such as 200ms or 1.5s."""
    return Decimal(time[:-2]) / 1000 if time.endswith("ms") else Decimal(time[:-1])


def _measurable(time: str) -> str:
    if not seconds(_SHORTEST) <= seconds(time) <= seconds(_LONGEST):
        raise ValueError(_OUTSIDE)
    return time


_Time = Annotated[str, Field(pattern=r"^[0-9]{1,6}(\.[0-9]{1,3})?(ms|s)$", max_length=12), AfterValidator(_measurable)]
_OBJECTIVES = {"p50": "0.5", "p90": "0.9", "p95": "0.95", "p99": "0.99"}


class Latency(Base):
    """How long requests take, over all servers, and how long they may take.

    A container in each pod measures it from a sample of the requests that Triton traces, about ten per second. Needs
    servers of 2.57 (release 25.04) or later; older ones trace nothing, because it could end them. Adding or removing
    this replaces the servers; another objective doesn't.
    """

    model_config = config(
        rule(
            f"[{', '.join(f'has(self.{f}) ? self.{f} : {_LONGEST!r}' for f in _OBJECTIVES)}].all(t, "
            f"duration(t) >= duration({_SHORTEST!r}) && duration(t) <= duration({_LONGEST!r}))",
            _OUTSIDE,
        )
    )

    p50: _Time | None = None
    """The time that half of the requests should take at most, e.g. 50ms or 1.5s. Alerts say when too many are slower.
    """
    p90: _Time | None = None
    """The same for 90 % of the requests."""
    p95: _Time | None = None
    """The same for 95 % of the requests."""
    p99: _Time | None = None
    """The same for 99 % of the requests."""

    @property
    def objectives(self) -> list[LatencyObjective]:
        given = {field: getattr(self, field) for field in _OBJECTIVES}
        return [LatencyObjective(f"{f}={time}", _OBJECTIVES[f], seconds(time)) for f, time in given.items() if time]


class Monitoring(Base):
    """Metrics, recording rules and alerts in Prometheus.

    Needs the CRDs of prometheus-operator; without them, everything else works.
    """

    model_config = config(
        rule(
            "!has(self.alertLabels) || self.alertLabels.all(k, k.matches('^[a-zA-Z_][a-zA-Z0-9_]*$') && "
            f"!(k in {list(ALERTS_OWN_LABELS)}))",
            "a name in alertLabels must have only letters, digits and '_', must not start with a digit, and must not "
            f"be one of the alerts' own labels: {', '.join(ALERTS_OWN_LABELS)}",
        ),
    )

    enabled: bool = True
    """Whether the operator creates a PodMonitor and a PrometheusRule."""
    alerts: bool = True
    """Whether the PrometheusRule has alerts, or only recording rules."""
    labels: Annotated[dict[str, LabelValue], Field(max_length=32)] = {}
    """Labels of the PodMonitor and the PrometheusRule, so that your Prometheus selects them, e.g. release:
    kube-prometheus-stack."""
    alert_labels: Annotated[dict[str, Annotated[str, Field(max_length=253)]], Field(max_length=32)] = {}
    """Labels of every alert, for Alertmanager's routes, e.g. team: vision."""
    scrape_seconds: Annotated[int, Field(**_SECONDS)] = 10
    """Seconds between scrapes of the servers' metrics. Rates need several samples per minute."""
    evaluation_seconds: Annotated[int, Field(**_SECONDS)] = 10
    """Seconds between evaluations of the rules. A new threshold takes effect after a scrape of the operator (5 s) and
    one evaluation."""
    objective: Annotated[str, Field(pattern=r"^([5-9][0-9]|99\.[0-9]{1,4})$", max_length=8)] = "99.9"
    """Percentage of requests that should succeed. The burn-rate alerts use it."""
    queue_milliseconds: Annotated[int, Field(ge=1, le=600000)] = 100
    """Maximum time in milliseconds that requests wait in a model's queue, as the mean of a minute, before an alert."""
    token_counter: _Metric | None = None
    """Name of the counter of tokens in the server's metrics, e.g. a custom metric of your Python model. The annotations
    max-tps, max-tps-per-replica and token-coefficient need it."""
    streaming: Streaming | None = None
    """Series of a model that streams its answers, such as a language model."""
    latency: Latency | None = None
    """Measures the times of requests over all servers, with objectives and alerts for them. {} measures only."""
    processes: bool = False
    """Shows the CPU, the memory and the threads of tritonserver and of each process of a Python model, e.g. of
    preprocess and postprocess apart. A container in each pod exposes them. A change replaces the servers."""


_ANNOTATIONS = 64 << 10


class PodMetadata(Base):
    """Labels and annotations."""

    model_config = config(
        rule(
            "!has(self.annotations) || self.annotations.map(k, size(k) + size(self.annotations[k])).sum() "
            f"<= {_ANNOTATIONS}",
            f"annotations may have at most {_ANNOTATIONS} characters in total, names and values together",
        )
    )

    labels: Annotated[dict[str, LabelValue], Field(max_length=64)] = {}
    """Labels of the pods, in addition to the operator's."""
    annotations: Annotated[dict[str, Annotated[str, Field(max_length=16384)]], Field(max_length=64)] = {}
    """Annotations of the pods, in addition to the operator's."""


_RESERVED_KEY = (
    "has a name that the operator, Kubernetes or KEDA sets "
    f"({', '.join((*names.RESERVED_KEYS, *(f'{prefix}…' for prefix in kinds.RESERVED_PREFIXES)))}): use another name"
)
_KEY = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
_KEY_MAX = 317
"""With its prefix of up to 253 characters."""


def _without_reserved(metadata: dict[str, str]) -> dict[str, str]:
    if any(map(kinds.is_reserved, metadata)):
        raise ValueError(_RESERVED_KEY)
    return metadata


_KEYS = {
    "x-kubernetes-validations": [
        rule(
            f"self.all(k, !(k in {list(names.RESERVED_KEYS)}) && "
            f"!{list(kinds.RESERVED_PREFIXES)}.exists(p, k.startsWith(p)))",
            _RESERVED_KEY,
        ),
        # The API server would refuse all objects.
        rule(
            f"self.all(k, size(k) <= {_KEY_MAX} && k.matches('{_KEY}'))",
            "has a name that Kubernetes doesn't allow: use at most 63 letters, digits, '-', '_' and '.', such as "
            "cost-centre or example.com/cost-centre",
        ),
    ]
}


class CommonMetadata(Base):
    """Labels and annotations of all objects that the operator creates for a TritonModel."""

    labels: Annotated[
        dict[str, LabelValue], Field(max_length=32, json_schema_extra=_KEYS), AfterValidator(_without_reserved)
    ] = {}
    """Labels of all objects and the pods, e.g. cost-centre: "4711"."""
    annotations: Annotated[
        dict[str, Annotated[str, Field(max_length=2048)]],
        Field(max_length=32, json_schema_extra=_KEYS),
        AfterValidator(_without_reserved),
    ] = {}
    """Annotations of all objects and the pods."""


Omittable = Literal[
    "spec.securityContext.fsGroup",
    "spec.securityContext.runAsGroup",
    "spec.securityContext.runAsNonRoot",
    "spec.securityContext.runAsUser",
    "spec.securityContext.seccompProfile",
    "spec.containers.triton.lifecycle",
    "spec.containers.triton.livenessProbe",
    "spec.containers.triton.startupProbe",
]
"""Fields of the operator's pod template that a user may leave out."""


class PodTemplate(Base):
    """Other fields of the pods, merged over the operator's pod template."""

    metadata: PodMetadata = PodMetadata()
    """Labels and annotations of the pods."""
    spec: PodSpec = {}
    """Part of a PodSpec (see kubectl explain pod.spec), e.g. nodeSelector, tolerations, priorityClassName, volumes.
    Lists with names, such as containers and env, merge by name; the server's container is named `triton`. The source
    of a volume or the handler of a probe replaces the operator's. See also omit."""
    omit: Annotated[list[Omittable], Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"})] = []
    """Fields that the operator would set, and that the pods must not have, e.g. spec.securityContext.fsGroup. In spec,
    null does the same, but kubectl apply, kustomize and Argo CD drop null in silence. On OpenShift the operator leaves
    out runAsUser, runAsGroup and fsGroup anyway."""


class HealthRequest(Base):
    """A request with a known good answer, which shows that a server works."""

    file: Annotated[
        str,
        Field(max_length=512, pattern=r"^[^./\x00-\x20\x7f][^/\x00-\x20\x7f]*/(warmup/)?[A-Za-z0-9_][A-Za-z0-9._-]*$"),
    ]
    """The body of the request: a file in the folder of the model that gets it, such as detector/health.json, or in its
    folder warmup. A file with the ending .json is a request in JSON; any other is the content of the model's only input
    as it is, such as a picture. The model must answer it with HTTP 200. A decoupled model can't."""
    every_seconds: Annotated[int, Field(ge=5, le=3600)] = 10
    """How often each server gets the request. A server that fails to answer it three times gets no more requests from
    clients until it answers again. With `repair: Restart` it is replaced, see spec.repair."""
    timeout_seconds: Annotated[int, Field(ge=1, le=300)] = 5
    """The time limit of the request. Set it above the time of your longest request, after which the server surely has
    answered one. A server that answers others meanwhile counts as working."""

    @property
    def model(self) -> str:
        """The model that gets the request."""
        return self.file.partition("/")[0]


class TritonModelSpec(Base):
    """The model image, the Triton server, scaling and monitoring."""

    model_config = config(
        rule(
            "has(self.entrypoint) || self.server.modelControl == 'none' || size(self.server.loadModels) == 1",
            "server.loadModels has several models, so entrypoint is required: set it to the model that clients call",
        ),
        rule(
            "!has(self.replicas) || !has(self.autoscaling) || self.autoscaling.engine == 'None'",
            "replicas and autoscaling exclude each other: remove replicas, or set autoscaling.engine to None",
        ),
        rule(
            "!has(self.healthRequest) || self.server.modelControl == 'none' "
            "|| '*' in self.server.loadModels "
            "|| self.healthRequest.file.split('/')[0] in self.server.loadModels "
            "|| (has(self.entrypoint) && self.healthRequest.file.split('/')[0] == self.entrypoint)",
            "healthRequest.file is of a model that may not be loaded: use the folder of the entrypoint, or that of a "
            "model in server.loadModels",
        ),
        rule(
            "!has(self.healthRequest) || !has(self.server.args) "
            "|| !self.server.args.exists(a, a.matches('^--http-r[a-z-]*=([a-z-]+,)*inference(,[a-z-]+)*:'))",
            "healthRequest needs inference without a key: remove inference from --http-restricted-api",
        ),
        rule(
            "!has(self.healthRequest) || !has(self.models) || !has(self.server.args) "
            "|| !self.server.args.exists(a, a.startsWith('--cache-config') || a.startsWith('--response-cache')) "
            "|| !self.models.exists(m, m.name == self.healthRequest.file.split('/')[0] "
            "&& has(m.config.response_cache) && has(m.config.response_cache.enable) && m.config.response_cache.enable)",
            "a cache would answer healthRequest, also while the model hangs: remove response_cache of this model from "
            "models, or use a file of another model",
        ),
        rule(
            "!((has(self.models) && size(self.models) > 0) || (has(self.canary) && has(self.canary.models) "
            "&& size(self.canary.models) > 0)) || !has(self.server.args) "
            "|| !self.server.args.exists(a, a.startsWith('--model-config-name'))",
            "models sets fields of config.pbtxt, which Triton doesn't read with the flag --model-config-name: remove "
            "one of them",
        ),
        rule(
            "!has(self.monitoring.latency) || !has(self.server.args) "
            "|| !self.server.args.exists(a, a.startsWith('--trace'))",
            "monitoring.latency uses Triton's traces, which have one setting: remove the flags --trace… from "
            "server.args, or remove monitoring.latency",
        ),
        rule(
            "!has(self.monitoring.latency) || !has(self.server.args) "
            "|| !self.server.args.exists(a, a.matches('^--http-r[a-z-]*=([a-z-]+,)*(trace|metadata)(,[a-z-]+)*:')) "
            # The flag and its value may be two items; with gRPC's flag, the value may be of that one.
            f"&& (!self.server.args.exists(a, a.matches('{_HTTP_FLAG}')) "
            f"|| self.server.args.exists(a, a.matches('{_GRPC_FLAG}')) "
            "|| !self.server.args.exists(a, a.matches('^([a-z-]+,)*(trace|metadata)(,[a-z-]+)*:')))",
            "monitoring.latency needs Triton's traces and version without a key: remove trace and metadata from "
            "--http-restricted-api",
        ),
        rule(
            "self.memoryGrowth != 'Replace' || (self.monitoring.enabled && self.monitoring.processes)",
            "memoryGrowth: Replace needs to see the memory of the servers: set monitoring.processes to true, or "
            "memoryGrowth to Report",
        ),
        rule(
            f"!has(self.canary) || has(self.route) || self.canary.weight <= {MAX_BY_SERVERS}",
            f"without spec.route, the canary's share comes from its number of servers: set canary.weight to at most "
            f"{MAX_BY_SERVERS}, or add spec.route",
        ),
        rule(
            "!has(self.canary) || has(self.route) || !has(self.canary.mirror) || !self.canary.mirror",
            "canary.mirror needs spec.route, because a Gateway copies the requests: add spec.route, or remove mirror",
        ),
        rule(
            "!has(self.canary) || !has(self.route) || !has(self.route.hashHeader)",
            "canary and route.hashHeader exclude each other, because the requests of a sequence would go to both kinds "
            "of servers: remove one of them",
        ),
    )

    model_image: ModelImage
    """The OCI image that carries the model repository."""
    entrypoint: ModelName | None = None
    """The model that clients call; in a pipeline it is the ensemble. Default: the only ensemble of the repository, or
    its only model. If it is set, a server is ready when this model is ready; otherwise when all models are."""
    server: Server = Server()
    """The Triton server."""
    models: ModelOverrides = []
    """Fields of the models' config.pbtxt that differ from the image, such as instance_group. A change replaces the
    servers, as one of the image does."""
    replicas: Annotated[int, Field(ge=0, le=10000)] | None = None
    """Number of servers. Omit it if something else scales the Deployment; the operator then doesn't write the number.
    Default: 1, if nothing scales the Deployment."""
    autoscaling: Autoscaling | None = None
    """Scales the servers by their load. Excludes replicas."""
    monitoring: Monitoring = Monitoring()
    """Metrics, recording rules and alerts in Prometheus."""
    service: Service = Service()
    """The Service of the servers."""
    route: Route | None = None
    """How clients outside of the cluster reach the servers, through a Gateway. Default: not at all."""
    canary: Canary | None = None
    """Further servers with another image or configuration, which get a part of the requests, to try it. Default:
    none."""
    network_policy: NetworkPolicy | None = None
    """Which clients may connect to the servers, and where the servers may connect to. Default: no NetworkPolicy.
    networkPolicy: {} creates one with strict defaults."""
    disruption: Disruption = Disruption()
    """How many pods node drains may evict at once."""
    rollout: Rollout = Rollout()
    """How the operator replaces the pods after a change, and how they start and stop."""
    health_request: HealthRequest | None = None
    """A request that shows whether a server works: it finds a backend that answers each request with an error, or that
    hangs, while Triton says that it is ready. Default: none."""
    repair: Literal["Restart", "Report"] = "Restart"
    """What happens to a server that can't answer while Triton says that it is ready. Restart: it restarts four seconds
    after the process of a Python model died, but after three such restarts in a row it waits ten minutes if its other
    models get requests until then. And it is evicted half a minute after it has stopped answering spec.healthRequest,
    if another one answers it, and the only one after the time of a start; at most five a day, with pauses that grow.
    status.lastRepair says why. Report: the condition Ready and the log say it, and nothing else happens."""
    memory_growth: Literal["Report", "Replace"] = "Report"
    """What happens when the memory of a server grows steadily towards its limit, at which the kernel would end it. It
    needs monitoring.processes. Report: the condition Ready and an alert say when. Replace: in addition, the operator
    replaces all servers when 90 % of the limit is used, or earlier if it takes long, as a change of
    rollout.restartedAt does: by rollout.maxSurge and maxUnavailable, one after another by default. It doesn't if no
    server would answer meanwhile, nor if new servers would live for less than ten starts of one, or than three
    replacements of all; Ready says why. A canary's servers aren't replaced."""
    common_metadata: CommonMetadata = CommonMetadata()
    """Labels and annotations of all objects that the operator creates for this TritonModel, and of the pods, e.g. for a
    cluster that demands a label of every object. Those in podTemplate.metadata and monitoring.labels take precedence. A
    change replaces the servers, because it changes the pods."""
    pod_template: PodTemplate = PodTemplate()
    """Other fields of the pods, merged over the operator's pod template."""


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
    """The desired state."""

    @property
    def scaling(self) -> Autoscaling | None:
        """Returns spec.autoscaling, or None if the operator creates no autoscaler."""
        scaling = self.spec.autoscaling
        return scaling if scaling is not None and scaling.engine != "None" else None

    @property
    def copies(self) -> bool:
        """Whether the canary gets copies of the requests."""
        return self.spec.canary is not None and self.spec.canary.mirror

    @property
    def compares(self) -> bool:
        """Whether answers of the canary are compared with those of the other servers."""
        return self.spec.canary is not None and self.copies and self.spec.canary.compare_percent > 0

    @property
    def measures_latency(self) -> bool:
        """Whether the pods have a container that measures how long requests take."""
        monitoring = self.spec.monitoring
        return monitoring.enabled and monitoring.latency is not None

    @property
    def shows_processes(self) -> bool:
        """Whether the pods have a container that exposes what the processes of the server use."""
        return self.spec.monitoring.enabled and self.spec.monitoring.processes

    @property
    def is_explicit(self) -> bool:
        """Whether the servers load only the models in spec.server.loadModels."""
        return self.spec.server.model_control == "explicit"

    @property
    def changes_models(self) -> bool:
        """Whether a change of spec.server.loadModels reaches running servers.

        Without an entrypoint the readiness probe asks for all models, and fails while one is being loaded.
        """
        server = self.spec.server
        return self.is_explicit and bool(self.spec.entrypoint) and not server_access.closes_changes(server.args)

    @property
    def monitoring_labels(self) -> dict[str, str]:
        """Returns the labels of the PodMonitor and the PrometheusRule."""
        return {**self.spec.common_metadata.labels, **self.spec.monitoring.labels, **names.labels(self.name)}

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def namespace(self) -> str:
        return self.metadata.namespace
