"""The input of rendering that isn't in the spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from triton_operator.api import names
from triton_operator.api.kinds import Kind
from triton_operator.api.thresholds import ThresholdKey

Delivery = Literal["Copy", "ImageVolume"]


@dataclass(frozen=True)
class Models:
    """Models of spec.server.loadModels, now and before.

    Attributes:
        listed: the models that servers load when they start.
        others: further models that servers may have, because the spec had them.
    """

    listed: tuple[str, ...]
    others: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Both."""
        return (*self.listed, *self.others)


@dataclass(frozen=True)
class RenderSettings:
    """What the operator's settings say about the rendered objects."""

    operator_namespace: str = names.FIELD_MANAGER
    """The operator's namespace, which a NetworkPolicy must admit."""
    metrics_job: str = names.METRICS_JOB
    """The label `job` of the operator's metrics in Prometheus."""
    sample_limit: int = names.SAMPLE_LIMIT
    """The maximum number of samples of one scrape of a server."""
    runbooks: str = names.RUNBOOKS
    """Base URL of the alerts' runbooks."""
    engines: Mapping[str, str] = field(default_factory=dict)
    """Those of the engines, by the environment variable."""


@dataclass(frozen=True)
class Capabilities:
    """What the cluster has."""

    monitoring: bool = True
    """Whether it has the CRDs of prometheus-operator."""
    missing: frozenset[Kind] = frozenset()
    """The optional kinds that it doesn't have."""
    openshift: bool = False
    """Whether it sets the user and the groups of each namespace's pods itself, and refuses fixed ones."""
    kubernetes: tuple[int, int] = (0, 0)
    """Its major and minor version; (0, 0) if it isn't known."""
    lacks: frozenset[tuple[str, str]] = frozenset()
    """Fields that its CRDs don't know, as the child's kind and `NewerField.path`."""


@dataclass(frozen=True)
class NewTemplate:
    """The decision to render a new pod template."""

    replaced: str = ""
    """The value of ANNOTATION_REPLACED in it."""


@dataclass(frozen=True)
class KeptTemplate:
    """The decision to keep the pod template of the live Deployment."""

    template: dict[str, Any]
    newer: bool
    """Whether a new one would differ."""
    replaced: str
    """The value of ANNOTATION_REPLACED in the live pod template."""


@dataclass(frozen=True)
class Facts:
    """What is known of one TritonModel at one moment, and isn't in its spec."""

    tools_image: str
    """The operator's own image, for the init containers."""
    delivery: Delivery = "Copy"
    """The value of spec.modelImage.delivery, with Auto resolved."""
    replicas: int = 1
    """The desired number of servers, from the spec or from the live Deployment."""
    entrypoint: str = ""
    """The model that clients call; "" if it isn't known yet."""
    ensemble: bool = False
    """Whether the entrypoint is an ensemble."""
    decoupled: tuple[str, ...] = ()
    """Models that may answer a request with several responses."""
    thresholds: Mapping[ThresholdKey, float] = field(default_factory=dict)
    """The effective thresholds. The rules contain them as fallback values."""
    prometheus: str = ""
    """URL of the Prometheus that has the load; "" if none is known."""
    lists: Mapping[str, Models] = field(default_factory=dict)
    """The lists of models that servers load, by their keys in the ConfigMap. Without that of the chosen pod template,
    its servers load spec.server.loadModels."""
    initial_replicas: int | None = None
    """The number of servers of a new Deployment that an autoscaler scales; None for the default."""
    autoscaler_floor: int = 0
    """The least number of servers that the engine has decided; 0 without a decision."""
    group: str = ""
    """The name of the group of servers to render; "" for the one that every TritonModel has."""
    settings: RenderSettings = RenderSettings()
    cluster: Capabilities = Capabilities()
    template: NewTemplate | KeptTemplate = NewTemplate()
