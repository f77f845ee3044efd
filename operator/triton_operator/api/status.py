"""The status of a TritonModel."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from triton_repository_check.text import one_line

from .fields import Base

READY = "Ready"
PROGRESSING = "Progressing"
MODELS_LOADED = "ModelsLoaded"
THRESHOLD_LIVE = "ThresholdLive"
AUTOSCALER_ACTIVE = "AutoscalerActive"
MONITORING_AVAILABLE = "MonitoringAvailable"
ROUTED = "Routed"
ENFORCED = "Enforced"
CANARY = "Canary"
RECONCILING, STALLED = "Reconciling", "Stalled"
KSTATUS = frozenset({RECONCILING, STALLED})
"""What Flux and Helm read, with the reasons of Progressing."""
CONDITIONS = KSTATUS | {
    READY,
    PROGRESSING,
    MODELS_LOADED,
    THRESHOLD_LIVE,
    AUTOSCALER_ACTIVE,
    MONITORING_AVAILABLE,
    ROUTED,
    ENFORCED,
    CANARY,
}
"""The types of the operator's conditions. Server-side apply keeps those of other field managers beside them."""

Truth = Literal["True", "False", "Unknown"]
Text = Annotated[str, AfterValidator(one_line)]
"""One line of printable text. Most of the status quotes other components, and terminals, Events and logs show it."""
Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


def timestamp(time: datetime, precision: Literal["seconds", "milliseconds"] = "seconds") -> str:
    """Returns a time in UTC as Kubernetes writes it: 2026-01-01T00:00:00Z."""
    return time.isoformat(timespec=precision).replace("+00:00", "Z")


class Condition(Base):
    """One aspect of the current state, and the reason for it."""

    type: Annotated[Text, Field(max_length=316)]
    """Ready: the entrypoint answers. Progressing: pods are being started or replaced, or their models change.
    ModelsLoaded: the servers have loaded all models. ThresholdLive: Prometheus uses the current thresholds.
    AutoscalerActive: the autoscaler gets the load. MonitoringAvailable: a Prometheus selects the rules and the servers.
    Routed: the Gateway has accepted the route. Enforced: the Gateway rejects requests above max-qps. Canary: the canary
    gets its part of the requests. Reconciling: the current spec isn't live yet. Stalled: it won't be without a change.
    If both are False, every server runs it."""
    status: Truth
    """True, False or Unknown."""
    reason: Annotated[Text, Field(max_length=1024)]
    """The cause, in one word."""
    message: Annotated[Text, Field(max_length=32768)]
    """Details, in the words of the component that reports them."""
    observed_generation: int = 0
    """The metadata.generation that this condition describes."""
    last_transition_time: Timestamp | None = None
    """When the field status last changed."""


class ModelStatus(Base):
    """One model of the repository, as Triton reports it."""

    name: Text
    """The model's name."""
    version: Text = ""
    """The loaded version; empty if there is none."""
    state: Text
    """Triton's state: READY, UNAVAILABLE, LOADING or UNLOADING; MISSING if a server doesn't list the model."""
    reason: Text = ""
    """Triton's message if the model isn't READY."""
    pods: Text
    """Number of servers on which the model is READY, of the servers that answer, e.g. 2/2."""
    load_time: Text = ""
    """How long its last load took on the slowest server, with the warm-up, e.g. 1.5s; empty with servers before 24.11,
    and with those that have no metrics."""


class ImageStatus(Base):
    """The model image in use."""

    reference: Text
    """The value of spec.modelImage.reference."""
    digest: Text = ""
    """The digest that the current pods run. Several, separated by commas, if the tag was moved between pod starts."""
    delivery: Text
    """Copy or ImageVolume."""


class ThresholdStatus(Base):
    """One accepted threshold."""

    kind: Text
    """One of max-qps, max-qps-peak, max-qps-per-replica, max-tps, max-tps-per-replica, max-streams-per-replica,
    max-cache-usage-per-replica, ensemble-coefficient, token-coefficient and spike-factor."""
    version: Text = ""
    """The model version that the threshold applies to; empty for all versions."""
    value: Text
    """The value, without its unit."""
    source: Text
    """The annotation that contains the value."""
    since: Timestamp
    """When the operator first read this value."""


class AutoscalingStatus(Base):
    """The last decision of the engine Direct that differs from the one before."""

    desired: int
    """Minimum number of servers for the load. It is spec.autoscaling.min while the HorizontalPodAutoscaler decides
    alone."""
    load: Text = ""
    """The load at that time, as a number of servers at full use; empty if it wasn't known."""
    reason: Text
    """ScaledUp: the engine has added servers, and the HorizontalPodAutoscaler may not remove them yet. LeftToHPA: the
    HorizontalPodAutoscaler decides alone. NoAnswer, NoThreshold: the load isn't known."""
    message: Text
    """The decision as a sentence."""
    time: Timestamp
    """When the engine decided this."""


class CalibrationStatus(Base):
    """The last result of `kubectl triton calibrate --apply`."""

    max_qps_per_replica: Text = ""
    """Requests per second that one server handled; empty if the annotation can't be read."""
    target: Text = ""
    """The target of the latency p99 that was met."""
    time: Timestamp | None = None
    """When the calibration began."""
    current: bool
    """False if what was measured differs from the servers that run now, or if the annotation can't be read."""
    message: Text
    """The result as a sentence, and what has changed since."""


UNDECIDED, GOOD, WORSE, REFUSED = "Undecided", "Good", "Worse", "Refused"
"""Verdicts about a canary."""
ENDED = frozenset({WORSE, REFUSED})
"""The verdicts after which it gets no requests."""


class AnswersStatus(Base):
    """What answers of the canary have in common with those of the other servers to the same requests.

    The numbers are those of the canary's servers that run. They are written when one has about doubled.
    """

    compared: Annotated[int, Field(ge=0)]
    """How many answers were compared, without varying ones."""
    equal: Annotated[int, Field(ge=0)]
    """How many of them are equal: the same, or with numbers that differ by at most 1 % or 0.001."""
    same: Annotated[int, Field(ge=0)]
    """How many of these are the same in each number."""
    varying: Annotated[int, Field(ge=0)] = 0
    """How many don't count, because the other servers gave two different answers to one request."""
    not_compared: Annotated[int, Field(ge=0)] = 0
    """How many couldn't be compared for another reason."""
    message: Text = ""
    """Which outputs differ, and why answers couldn't be compared, each with its number."""


class CanaryStatus(Base):
    """How far the canary has come, and what was found of it."""

    tried: Text
    """Identifies the canary's servers and its steps. Other servers begin at the first step."""
    weight: Annotated[int, Field(ge=0, le=100)]
    """The percentage of the requests that it should get now, or of their copies: a step, or spec.canary.weight; 0 if it
    is worse."""
    step: Text
    """The step that it has reached, of all, e.g. 2/3."""
    since: Timestamp | None = None
    """Since when it gets this weight, or when it was found to be worse."""
    verdict: Literal["Undecided", "Good", "Worse", "Refused"] = "Undecided"
    """Undecided: not enough is known at this step. Good: it is as good as the other servers with spec.canary.weight.
    Worse: it fails more often, is slower, or ends, and gets no requests until spec.canary changes. Refused: the Gateway
    doesn't copy requests (spec.canary.mirror)."""
    message: Text = ""
    """What the last verdict, also that of an earlier step, was found from."""
    answers: AnswersStatus | None = None
    """What its answers have in common with those of the other servers (spec.canary.comparePercent)."""


SERVER_FAILS, SERVER_HANGS = "ServerFails", "ServerHangs"
GPU_NOT_USED = "GPUNotUsed"
MEMORY_GROWS = "MemoryGrows"
SERVER_FAULTS = frozenset({SERVER_FAILS, SERVER_HANGS, GPU_NOT_USED, MEMORY_GROWS})
"""Reasons of Ready that are a problem although it is True: clients alone must not make it False."""
MAX_EVICTIONS = 5
"""Maximum number of evictions of a TritonModel's servers in a day."""
MAX_DECOUPLED = 20
"""Maximum number of models in the field decoupled."""
HEALTH_REQUEST_FAILED = "HealthRequestFailed"
MEMORY_GREW = "MemoryGrew"


class RepairStatus(Base):
    """A restart, an eviction or a replacement of a server."""

    reason: Text
    """BackendDied: the process of a Python model died, and the server restarted. HealthRequestFailed: the server
    stopped answering spec.healthRequest, and was evicted. MemoryGrew: its memory would have reached the limit, so all
    servers were replaced (spec.memoryGrowth)."""
    server: Text
    """The pod."""
    message: Text
    """What had failed, as a sentence."""
    time: Timestamp
    """When the server ended, was evicted, or began to be replaced."""


class TritonModelStatus(Base):
    """The current state."""

    observed_generation: Annotated[int, AfterValidator(lambda generation: max(generation, 0))] = 0
    """The metadata.generation that this status describes; -1 until the operator has seen the resource."""
    conditions: list[Condition] = []
    """Ready, Progressing, ModelsLoaded, ThresholdLive, AutoscalerActive, MonitoringAvailable, Routed, Enforced,
    Canary, Reconciling, Stalled."""
    models: list[ModelStatus] = []
    """The models of the repository, as Triton reports them on all servers: at most 100, those that aren't READY first.
    The field loaded counts all."""
    loaded: Text = ""
    """Number of loaded models, of the models that should be loaded, e.g. 4/4."""
    entrypoint: Text = ""
    """The model that clients call. During a rollout, that of the previous spec until a server of the new one is ready.
    """
    entrypoint_type: Literal["", "Ensemble", "Model"] = ""
    """Ensemble or Model. The parts of an ensemble have request counters of their own."""
    decoupled: Annotated[list[Text], Field(max_length=MAX_DECOUPLED)] = []
    """Models that may answer a request with several responses, for which Triton's time of a request may end before the
    last one. So this time isn't shown."""
    thresholds: list[ThresholdStatus] = []
    """The accepted thresholds."""
    max_qps: Text = ""
    """The limit in requests per second for all versions of the model."""
    autoscaling: AutoscalingStatus | None = None
    """The decision of the engine Direct (spec.autoscaling.engine)."""
    canary: CanaryStatus | None = None
    """How far the canary has come (spec.canary)."""
    calibration: CalibrationStatus | None = None
    """What one server handles, as measured."""
    last_repair: RepairStatus | None = None
    """The last repair because of spec.repair or spec.memoryGrowth."""
    evictions: Annotated[list[Timestamp], Field(max_length=MAX_EVICTIONS)] = []
    """When servers were evicted because of spec.repair, the first one first: the last ones only."""
    image: ImageStatus | None = None
    """The model image in use."""
    server_version: Text = ""
    """The version of Triton that the servers report, e.g. 2.51.0. Several, separated by commas, during a rollout of
    another spec.server.image."""
    newer_template: bool | None = None
    """True if this version of the operator has a newer pod template than the servers use. The next change of the spec,
    or of spec.rollout.restartedAt, rolls it out."""
    replicas: int = 0
    """Number of servers, without those of a canary."""
    ready_replicas: int = 0
    """Number of those servers on which the entrypoint answers."""
    selector: Text = ""
    """Label selector of the pods, for autoscalers that scale this resource."""
    endpoint: Text = ""
    """The URL for clients in the cluster (HTTP; gRPC uses port 8001)."""

    @property
    def for_people(self) -> list[Condition]:
        """Returns the conditions without those for other tools, which repeat the words of Progressing."""
        return [condition for condition in self.conditions if condition.type not in KSTATUS]


def status_of(model: Mapping[str, Any]) -> TritonModelStatus:
    """Returns the status of a TritonModel as the API server has it.

    Fields that can't be read, because another client or another version of the operator has written them, are left out.
    """
    status = model.get("status", {})
    try:
        return TritonModelStatus.model_validate(status)
    except ValidationError as error:
        fields = {
            str(fault["loc"][0]) for fault in error.errors(include_url=False, include_input=False) if fault["loc"]
        }
        readable = {key: value for key, value in status.items() if key not in fields} if fields else {}
        return TritonModelStatus.model_validate(readable)
