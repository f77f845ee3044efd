"""The Prometheus resources of a cluster, and which of them select an object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from .thresholds import ThresholdKey

Labels = Mapping[str, str]
LabelSelector = Mapping[str, Any]


class Series(NamedTuple):
    """A metric of a server, and the labels of those of its series that count.

    - `renamed`: the metric's name in newer servers; some expose both.
    """

    metric: str
    labels: tuple[tuple[str, str], ...] = ()
    renamed: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.metric, self.renamed) if self.renamed else (self.metric,)


@dataclass(frozen=True)
class Selection:
    """The selectors of a Prometheus resource for one kind, with the meaning that prometheus-operator gives them.

    - Without an object selector, it selects nothing.
    - Without a namespace selector, it selects only its own namespace.
    - An empty selector selects everything.
    """

    objects: LabelSelector | None
    namespaces: LabelSelector | None

    def selects(self, labels: Labels, namespace: str, namespace_labels: Labels, own: str) -> bool:
        """Returns whether a Prometheus in the namespace `own` selects an object with `labels` in `namespace`."""
        if self.objects is None or not matches(self.objects, labels):
            return False
        return namespace == own if self.namespaces is None else matches(self.namespaces, namespace_labels)


@dataclass(frozen=True)
class Prometheus:
    """One Prometheus resource.

    - `url`: its address inside the cluster.
    - `paused`: whether prometheus-operator keeps changes from it.
    """

    namespace: str
    name: str
    url: str
    rules: Selection
    pod_monitors: Selection
    paused: bool = False


@dataclass(frozen=True)
class Installed:
    """The monitoring of a cluster.

    - `prometheuses`: None if the operator may not list them, or the API server has not listed them yet.
    - `namespaces`: the labels of each namespace, by name.
    - `searched`: the namespaces in which the operator looks for Prometheus resources.
    - `answered`: whether the API server has answered, if only with a refusal.
    """

    prometheuses: tuple[Prometheus, ...] | None = None
    namespaces: Mapping[str, Labels] = field(default_factory=dict)
    searched: tuple[str, ...] = ()
    answered: bool = True

    def selecting(self, labels: Labels, namespace: str) -> list[Prometheus]:
        """Returns the Prometheus resources that select both rules and PodMonitors with `labels` in `namespace`."""
        own = self.namespaces.get(namespace, {})
        return [
            p
            for p in self.prometheuses or ()
            if p.rules.selects(labels, namespace, own, p.namespace)
            and p.pod_monitors.selects(labels, namespace, own, p.namespace)
        ]

    def differs(self, other: Installed, namespace: str) -> bool:
        """Returns whether `other` may select something else in this namespace."""
        own, others = self.namespaces.get(namespace), other.namespaces.get(namespace)
        return (replace(self, namespaces={}), own) != (replace(other, namespaces={}), others)


@dataclass(frozen=True, order=True)
class ServerFault:
    """A version of a model on one server that answers nothing, by the alerts ServerFails and ServerHangs.

    - `hangs`: requests wait, and it executes none. Otherwise it answers every request with an error.
    - `version`: "" if the alert doesn't say it, as of an operator before this field.
    """

    pod: str
    model: str
    hangs: bool
    version: str = ""


@dataclass(frozen=True)
class Origins:
    """Where a Prometheus has the series of a TritonModel from. The rules add all of them up.

    - `clusters`: how many TritonModels of this namespace and name there are.
    - `copies`: how often it has each series, e.g. from both replicas of a Prometheus.
    """

    clusters: int = 1
    copies: int = 1


@dataclass(frozen=True)
class PrometheusAnswer:
    """The answer of one Prometheus about a TritonModel. Comparisons ignore `at`.

    - `values`: the thresholds that its rules use.
    - `metrics`: the metrics that it has, of those that the thresholds need.
    - `uncounted`: the models whose requests aren't counted, by the alert TritonModelRequestsNotCounted.
    - `at_limit`: whether the Gateway lets about as many requests pass as max-qps allows, by TritonModelAtMaxQps.
    - `faults`: the models that answer nothing on a server.
    - `origins`: where it has the series from.
    - `error`: why there is no answer; `values` and `metrics` are then empty.
    - `at`: time of the query (RFC 3339, milliseconds); "" before the first answer.
    """

    values: Mapping[ThresholdKey, float] = field(default_factory=dict)
    metrics: frozenset[str] = frozenset()
    uncounted: tuple[str, ...] = ()
    at_limit: bool = False
    faults: tuple[ServerFault, ...] = ()
    origins: Origins = Origins()
    error: str = ""
    at: str = field(default="", compare=False)

    @property
    def is_missing(self) -> bool:
        """Whether it hasn't been queried yet, or has failed for too short a time to tell."""
        return not self.at and not self.error


def matches(selector: LabelSelector, labels: Labels) -> bool:
    """Returns whether `labels` meet every requirement of a Kubernetes label selector."""
    exact = selector.get("matchLabels") or {}
    if any(labels.get(k) != v for k, v in exact.items()):
        return False
    return all(_holds(e, labels) for e in selector.get("matchExpressions") or [])


def describe(selector: LabelSelector | None) -> str:
    """Returns a selector as text, e.g. release=prometheus."""
    if selector is None:
        return "nothing"
    parts = [f"{k}={v}" for k, v in (selector.get("matchLabels") or {}).items()]
    for e in selector.get("matchExpressions") or []:
        parts.append(" ".join([e["key"], e["operator"], *([",".join(e["values"])] if e.get("values") else [])]))
    return ", ".join(parts) or "everything"


def _holds(expression: Mapping[str, Any], labels: Labels) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None
