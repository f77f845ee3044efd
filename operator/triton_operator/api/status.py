"""What users read: the status of a TritonModel."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .fields import Base

READY = "Ready"
PROGRESSING = "Progressing"
MODELS_LOADED = "ModelsLoaded"
THRESHOLD_LIVE = "ThresholdLive"
AUTOSCALER_ACTIVE = "AutoscalerActive"
MONITORING_AVAILABLE = "MonitoringAvailable"

Truth = Literal["True", "False", "Unknown"]
Timestamp = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class Condition(Base):
    """One thing that is true of the resource, or not, and why."""

    type: Annotated[str, Field(max_length=316)]
    """Ready: the entrypoint answers. Progressing: pods are being replaced or started. ModelsLoaded: every
    model that the servers shall load is loaded. ThresholdLive: Prometheus compares with the thresholds that are
    set. AutoscalerActive: the autoscaler sees the load. MonitoringAvailable: a Prometheus picks up what was made
    for it."""
    status: Truth
    """True, False or Unknown."""
    reason: Annotated[str, Field(max_length=1024)]
    """Which phase this comes from, in one word."""
    message: Annotated[str, Field(max_length=32768)]
    """What happened, in the words of the component that says it."""
    observed_generation: int = 0
    """The metadata.generation that this is about."""
    last_transition_time: Timestamp | None = None
    """When status last changed."""


class ModelStatus(Base):
    """One model of the repository, as Triton sees it."""

    name: str
    """The model's name."""
    version: str = ""
    """The version that is loaded; empty where none is."""
    state: str
    """Triton's word: READY, UNAVAILABLE, LOADING or UNLOADING; MISSING where a server doesn't know it."""
    reason: str = ""
    """Triton's own words on why it isn't READY."""
    pods: str
    """On how many of the servers that answer it is READY, e.g. 2/2."""


class ImageStatus(Base):
    """The model image that runs."""

    reference: str
    """What spec.modelImage.reference said."""
    digest: str = ""
    """The digest that the current pods run; several, with commas, where a moving tag gave pods different ones."""
    delivery: str
    """Copy or ImageVolume."""


class ThresholdStatus(Base):
    """One threshold that is in force."""

    kind: str
    """Which one: max-qps, max-qps-per-replica, max-tps, ensemble-coefficient or spike-factor."""
    version: str = ""
    """The model version that it is for; empty for the model as a whole."""
    value: str
    """The value, in requests or tokens a second."""
    source: str
    """The annotation that it was read from."""
    since: Timestamp
    """When this value was first seen."""


class TritonModelStatus(Base):
    """What is true now."""

    observed_generation: int = 0
    """The metadata.generation that this status is about."""
    conditions: list[Condition] = []
    """Ready, Progressing, ModelsLoaded, ThresholdLive, AutoscalerActive, MonitoringAvailable."""
    models: list[ModelStatus] = []
    """Each model of the repository, as Triton sees it over all pods."""
    loaded: str = ""
    """Models that are loaded, of those that shall be, e.g. 4/4."""
    entrypoint: str = ""
    """The model that clients call."""
    entrypoint_type: Literal["", "Ensemble", "Model"] = ""
    """Whether that is an ensemble, whose parts do the work and count requests of their own."""
    thresholds: list[ThresholdStatus] = []
    """The thresholds that are in force."""
    max_qps: str = ""
    """The ceiling in requests a second for the model as a whole."""
    image: ImageStatus | None = None
    """The model image that runs."""
    newer_template: bool | None = None
    """True where this version of the operator renders another pod template than the one that the servers were made
    with. The next change of the spec takes it, or another value of spec.rollout.restartedAt."""
    replicas: int = 0
    """Servers that exist."""
    ready_replicas: int = 0
    """Servers on which the entrypoint answers."""
    selector: str = ""
    """Label selector of the pods; for autoscalers that scale this resource."""
    endpoint: str = ""
    """Where clients inside the cluster send requests (HTTP; gRPC is on port 8001)."""
