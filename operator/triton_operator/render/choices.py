"""What the spec leaves open and a rendering needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from triton_operator.api import names
from triton_operator.api.thresholds import ThresholdKey

Delivery = Literal["Copy", "ImageVolume"]


@dataclass(frozen=True)
class Choices:
    """`tools_image`: the operator's own image, for the pods' init containers. `delivery`: Auto, resolved.
    `replicas`: how many servers there shall be, by the spec or by whatever else scales. `entrypoint`: the model that
    clients call, "" where it isn't known yet; `ensemble`: whether it is one. `thresholds`: what is in force, which the
    rules carry as their last resort. `monitoring`: whether the cluster has the CRDs of prometheus-operator.
    `operator_namespace`: from where the operator asks the servers. `metrics_job`: the label `job` that the
    operator's own metrics have in Prometheus. `template`: the pod template to keep, None to render
    one; `newer_template`: whether rendering would give another one."""

    tools_image: str
    delivery: Delivery
    replicas: int = 1
    entrypoint: str = ""
    ensemble: bool = False
    thresholds: Mapping[ThresholdKey, float] = field(default_factory=dict)
    monitoring: bool = True
    operator_namespace: str = names.FIELD_MANAGER
    metrics_job: str = names.METRICS_JOB
    template: dict[str, Any] | None = None
    newer_template: bool = False
