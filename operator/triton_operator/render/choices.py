"""The input of rendering that isn't in the spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from triton_operator.api import names
from triton_operator.api.thresholds import ThresholdKey

Delivery = Literal["Copy", "ImageVolume"]
Field = Literal["", "spec.server.loadModels", "spec.modelImage.reference"]
LOAD_MODELS: Field = "spec.server.loadModels"
REFERENCE: Field = "spec.modelImage.reference"


@dataclass(frozen=True)
class Choices:
    """The input of rendering that isn't in the spec.

    - `tools_image`: the operator's own image, for the init containers.
    - `delivery`: the value of spec.modelImage.delivery, with Auto resolved.
    - `replicas`: the desired number of servers, from the spec or from the live Deployment.
    - `entrypoint`: the model that clients call, "" if it isn't known yet. `ensemble`: whether it is an ensemble.
    - `thresholds`: the effective thresholds; the rules contain them as fallback values.
    - `monitoring`: whether the cluster has the CRDs of prometheus-operator. `keda`: whether it has those of KEDA.
    - `prometheus`: URL of the Prometheus that KEDA queries, "" if none is known.
    - `operator_namespace`: the operator's namespace, which a NetworkPolicy must admit.
    - `metrics_job`: the label `job` of the operator's metrics in Prometheus.
    - `suspended`: whether the scraping is suspended, because a server replaces its series.
    - `sample_limit`: the maximum number of samples of one scrape of a server.
    - `series`: the (model, version) that Prometheus keeps; empty for version 1 of the entrypoint.
    - `target_labels`: labels that the Prometheus of the administrator adds to targets.
    - `runbooks`: base URL of the alerts' runbooks.
    - `template`: the pod template to keep, None to render a new one. `newer_template`: whether a new one would differ.
    - `load_models`: the models in `template` while they differ from spec.server.loadModels; None otherwise.
    - `reference`: the model image in `template` while it differs from spec.modelImage.reference; None otherwise.
    - `only`: the only changed field of the pods' part of the spec, if it can change without new servers. `rollout`: the
      changed field, and why its change needs new servers.
    - `initial_replicas`: the number of servers of a new Deployment that an autoscaler scales, None for the default.
    - `autoscaler_floor`: minReplicas of the autoscaler if the engine Direct has raised it.
    - `former_selector`: whether the Deployment has the immutable selector of earlier versions of the operator.
    - `former_account`: whether servers run as the ServiceAccount of earlier versions.
    """

    tools_image: str
    delivery: Delivery
    replicas: int = 1
    entrypoint: str = ""
    ensemble: bool = False
    thresholds: Mapping[ThresholdKey, float] = field(default_factory=dict)
    monitoring: bool = True
    keda: bool = True
    prometheus: str = ""
    operator_namespace: str = names.FIELD_MANAGER
    metrics_job: str = names.METRICS_JOB
    suspended: bool = False
    sample_limit: int = names.SAMPLE_LIMIT
    series: tuple[tuple[str, str], ...] = ()
    target_labels: tuple[str, ...] = ()
    runbooks: str = names.RUNBOOKS
    template: dict[str, Any] | None = None
    newer_template: bool = False
    load_models: tuple[str, ...] | None = None
    reference: str | None = None
    only: Field = ""
    rollout: str = ""
    initial_replicas: int | None = None
    autoscaler_floor: int = 0
    former_selector: bool = False
    former_account: bool = False
