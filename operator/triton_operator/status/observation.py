"""The observed state of one TritonModel: the input of this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_operator.api.monitoring import Answer, Installed
from triton_operator.api.servers import Index, Uncounted
from triton_operator.api.status import AutoscalingStatus
from triton_operator.api.thresholds import ThresholdKey, Thresholds
from triton_operator.render.series import Pair

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Problem:
    """Why something doesn't work: one word for the cause, and the message of the component that failed."""

    reason: str
    message: str


@dataclass(frozen=True)
class Listed:
    """The versions of models of which Prometheus gets the metrics.

    - `missing`: how many known versions don't fit. `again`: after how many seconds to decide again.
    """

    pairs: tuple[Pair, ...]
    missing: int = 0
    again: float | None = None


@dataclass(frozen=True)
class ModelsChange:
    """A change of spec.server.loadModels on the running servers.

    - `left`: number of servers that are still to be changed. 0: only the template for later servers.
    - `failure`: why the change has stopped, "" if it hasn't. `refused`: whether Triton has refused a model.
    """

    left: int
    failure: str = ""
    refused: bool = False


@dataclass(frozen=True)
class ImageChange:
    """A change of spec.modelImage.reference with rollout.strategy InPlace.

    - `way`: how it reaches the servers, as in status.image.change. "" with another strategy.
    - `left`: number of servers that are still to be changed. `changing`: whether the change isn't complete; with 0
      servers left, only the template for later servers is missing.
    """

    way: str = ""
    left: int = 0
    changing: bool = False


@dataclass(frozen=True)
class Observation:
    """The input of `assess`.

    - `template`: hash of the desired pod template.
    - `selector`: labels that select the pods.
    - `paused`: whether someone else has paused the Deployment.
    - `newer_template`: whether this version of the operator would render a different one.
    - `indexes`: pod name → repository index, for the servers that answer.
    - `unusable`: pod name → why the server's answer can't be used.
    - `pending`: whether a server hasn't answered since it started or since its readiness changed.
    - `uncounted`: models that answer requests without Triton counting them, each with the evidence.
    - `refused`: kind → why the API server refused the write.
    - `scaling`: the decision of the engine Direct, None with another engine.
    - `requested`: the thresholds in the annotations. `thresholds`: the effective ones.
    - `scaled_object`: the ScaledObject of KEDA. `keda`: whether the cluster has its CRD. `prometheus`: URL of the
      Prometheus that KEDA queries, "" if none is known.
    - `installed`: the cluster's monitoring, None if its CRDs are missing.
    - `has_rules`: whether there is a PrometheusRule.
    - `series`: the versions of models in the PodMonitor.
    - `models_change`: a change of spec.server.loadModels that isn't complete. `image_change`: the last one of
      spec.modelImage.reference with InPlace. `rollout`: the field of which a change replaces the servers, and why.
    - `answer`: Prometheus' last answer, None if there is no Prometheus to query.
    """

    template: str
    delivery: str
    selector: Mapping[str, str] = field(default_factory=dict)
    newer_template: bool = False
    deployment: Object | None = None
    pods: tuple[Object, ...] = ()
    indexes: Mapping[str, Index] = field(default_factory=dict)
    unusable: Mapping[str, str] = field(default_factory=dict)
    pending: bool = False
    uncounted: Uncounted = ()
    refused: Mapping[str, Problem] = field(default_factory=dict)
    autoscaler: Object | None = None
    scaled_object: Object | None = None
    keda: bool = True
    prometheus: str = ""
    scaling: AutoscalingStatus | None = None
    requested: Thresholds = field(default_factory=lambda: Thresholds({}))
    thresholds: Mapping[ThresholdKey, float] = field(default_factory=dict)
    installed: Installed | None = None
    has_rules: bool = False
    models_change: ModelsChange | None = None
    image_change: ImageChange = ImageChange()
    rollout: str = ""
    paused: bool = False
    answer: Answer | None = None
    series: Listed = field(default_factory=lambda: Listed(()))
