"""The observed state of one TritonModel: the input of this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_operator.api import names
from triton_operator.api.monitoring import Installed, PrometheusAnswer
from triton_operator.api.servers import ServerAnswers
from triton_operator.api.status import AutoscalingStatus, RepairStatus
from triton_operator.api.thresholds import ThresholdKey, Thresholds
from triton_operator.pods import Pod, Problem
from triton_operator.pods.group import Group
from triton_operator.render.child_type import NewerField
from triton_operator.render.children import CHILDREN
from triton_operator.render.facts import Models

Object = Mapping[str, Any]


@dataclass(frozen=True)
class ModelsChange:
    """A change of spec.server.loadModels on the running servers."""

    left: int
    """The number of servers that are still to be changed."""
    failure: str = ""
    """Why the change has stopped; "" if it hasn't."""
    refused: bool = False
    """Whether Triton has refused a model."""


@dataclass(frozen=True)
class Scaler:
    """What changes the number of servers, and what it needs for that."""

    autoscaler: Object | None = None
    """The HorizontalPodAutoscaler."""
    scaled_object: Object | None = None
    """The ScaledObject of KEDA."""
    keda: bool = True
    """Whether the cluster has the CRD of ScaledObjects."""
    prometheus: str = ""
    """URL of the Prometheus that KEDA queries; "" if none is known."""
    scaling: AutoscalingStatus | None = None
    """The decision of the engine Direct; None with another engine."""


@dataclass(frozen=True)
class ObservedMonitoring:
    """What evaluates the rules of the TritonModel."""

    installed: Installed | None = None
    """The cluster's monitoring; None if its CRDs are missing."""
    has_rules: bool = False
    """Whether there is a PrometheusRule."""
    sample_limit: int = names.SAMPLE_LIMIT
    """The maximum number of samples of one scrape of a server."""
    answer: PrometheusAnswer | None = None
    """Prometheus' last answer; None if there is no Prometheus to query."""


@dataclass(frozen=True)
class Observation:
    """The input of `assess`."""

    groups: tuple[Group, ...]
    """The groups of servers, each with its desired pod template. The first one is that of every TritonModel."""
    delivery: str
    kubernetes: tuple[int, int] = (0, 0)
    """The cluster's major and minor version; (0, 0) if it isn't known."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """The labels that select the pods."""
    newer_template: bool = False
    """Whether this version of the operator would render a different pod template for a group."""
    ending: tuple[Pod, ...] = ()
    """The pods of no group."""
    refused: Mapping[str, Problem] = field(default_factory=dict)
    """Kind → why the API server refused the write."""
    dropped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Kind → paths of fields that the API server didn't store."""
    left_out: Mapping[str, tuple[NewerField, ...]] = field(default_factory=dict)
    """Kind → fields that it would have if the cluster's CRD knew them."""
    contested: Mapping[str, str] = field(default_factory=dict)
    """Kind → which of its labels or annotations another writer changes again and again."""
    evicted: RepairStatus | None = None
    """The server that this reconcile has evicted."""
    repair: str = ""
    """What comes next for a server that doesn't answer; "" if each answers."""
    refused_if_new: str = ""
    """What is wrong with the spec with which the servers run; "" if nothing is."""
    models_change: ModelsChange | None = None
    """A change of spec.server.loadModels that isn't complete."""
    lists: Mapping[str, Models] = field(default_factory=dict)
    """The lists of models that servers load when they start, by their keys in the ConfigMap."""
    rollout: str = ""
    """Why a change of spec.server.loadModels replaces the servers; "" if it doesn't."""
    requested: Thresholds = field(default_factory=lambda: Thresholds({}))
    """The thresholds in the annotations."""
    thresholds: Mapping[ThresholdKey, float] = field(default_factory=dict)
    """The effective thresholds."""
    servers: ServerAnswers = field(default_factory=ServerAnswers)
    scaler: Scaler = Scaler()
    monitoring: ObservedMonitoring = ObservedMonitoring()

    @property
    def main(self) -> Group:
        """The group that every TritonModel has."""
        return self.groups[0]

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods of all groups, and those that end."""
        return (*(pod for group in self.groups for pod in group.pods), *self.ending)

    def refusal(self, condition: str) -> Problem | None:
        """Returns the first refused write of an object that this condition reports on."""
        refusals = (self.refused.get(child.kind.kind) for child in CHILDREN if child.condition == condition)
        return next((problem for problem in refusals if problem), None)
