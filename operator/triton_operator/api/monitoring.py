"""What is known of the Prometheuses of a cluster, and which of them picks an object up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .thresholds import ThresholdKey

Labels = Mapping[str, str]
LabelSelector = Mapping[str, Any]


@dataclass(frozen=True)
class Selection:
    """Which objects of one kind a Prometheus takes. As prometheus-operator has it: no selector of objects picks
    none, no selector of namespaces picks the Prometheus' own, and an empty selector picks everything."""

    objects: LabelSelector | None
    namespaces: LabelSelector | None

    def picks(self, labels: Labels, namespace: str, namespace_labels: Labels, own: str) -> bool:
        """Whether an object with `labels` in `namespace` is picked by a Prometheus in the namespace `own`."""
        if self.objects is None or not matches(self.objects, labels):
            return False
        return namespace == own if self.namespaces is None else matches(self.namespaces, namespace_labels)


@dataclass(frozen=True)
class Prometheus:
    """One Prometheus resource. `url` is where it answers inside the cluster."""

    namespace: str
    name: str
    url: str
    rules: Selection
    pod_monitors: Selection


@dataclass(frozen=True)
class Installed:
    """The monitoring of a cluster. `prometheuses`: None where they may not be listed. `namespaces`: labels by name.
    `looked_in`: the namespaces whose Prometheuses count."""

    prometheuses: tuple[Prometheus, ...] | None = None
    namespaces: Mapping[str, Labels] = field(default_factory=dict)
    looked_in: tuple[str, ...] = ()

    def selecting(self, labels: Labels, namespace: str) -> list[Prometheus]:
        """Those that pick up both the rules and the scrape configuration with `labels` in `namespace`."""
        own = self.namespaces.get(namespace, {})
        return [
            p
            for p in self.prometheuses or ()
            if p.rules.picks(labels, namespace, own, p.namespace)
            and p.pod_monitors.picks(labels, namespace, own, p.namespace)
        ]


@dataclass(frozen=True)
class Answer:
    """What one Prometheus says of a TritonModel. `values`: the thresholds that its rules compare with. `tokens`:
    whether it has the counter of tokens. `error`: why it doesn't say, and then the rest is empty. `at`: when it was
    asked (RFC 3339, milliseconds); "" where it hasn't been asked yet. Answers that differ only in this are equal."""

    values: Mapping[ThresholdKey, float] = field(default_factory=dict)
    tokens: bool = False
    error: str = ""
    at: str = field(default="", compare=False)


def matches(selector: LabelSelector, labels: Labels) -> bool:
    """Kubernetes' label selectors: every requirement holds."""
    exact = selector.get("matchLabels") or {}
    if any(labels.get(k) != v for k, v in exact.items()):
        return False
    return all(_holds(e, labels) for e in selector.get("matchExpressions") or [])


def describe(selector: LabelSelector | None) -> str:
    """A selector in words, e.g. release=prometheus."""
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
