"""What was seen of one TritonModel in one pass: the input of every judgement in this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_operator.api.monitoring import Answer, Installed
from triton_operator.api.servers import Index
from triton_operator.api.thresholds import ThresholdKey, Thresholds

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Problem:
    """Why something doesn't become true: one word for the phase, and the failing component's own words."""

    reason: str
    message: str


@dataclass(frozen=True)
class Observation:
    """`template`: hash of the pod template that is wanted; `newer_template`: whether this version of the
    operator would render another one. `indexes`: pod name → what its server answered; pods whose
    server doesn't answer are not in it. `pending`: whether a server's first answer since it started or its readiness
    changed is outstanding. `refused`: kind → why the API server refused to write it. `requested`: what the
    annotations say; `thresholds`: what is in force. `installed`: the cluster's monitoring, None where its CRDs are
    missing. `has_rules`: whether rules are wanted and known. `answer`: what Prometheus says, None where none could be
    asked."""

    template: str
    delivery: str
    newer_template: bool = False
    deployment: Object | None = None
    pods: tuple[Object, ...] = ()
    indexes: Mapping[str, Index] = field(default_factory=dict)
    pending: bool = False
    refused: Mapping[str, Problem] = field(default_factory=dict)
    autoscaler: Object | None = None
    requested: Thresholds = field(default_factory=lambda: Thresholds({}))
    thresholds: Mapping[ThresholdKey, float] = field(default_factory=dict)
    installed: Installed | None = None
    has_rules: bool = False
    answer: Answer | None = None
