"""What is known about one TritonModel at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from triton_operator.api.kinds import POD, Kind
from triton_operator.api.monitoring import Installed, PrometheusAnswer
from triton_operator.api.servers import ChangeOutcome, Comparison, History, MemoryGrowth, ServerAnswers
from triton_operator.api.status import TritonModelStatus
from triton_operator.api.thresholds import Thresholds
from triton_operator.api.types import TritonModel
from triton_operator.plan import Identity
from triton_operator.pods import Pod, Problem
from triton_operator.pods.group import Group
from triton_operator.render import Facts
from triton_operator.render.children import BY_NAME
from triton_operator.render.facts import Capabilities, Delivery

Object = dict[str, Any]


@dataclass(frozen=True)
class Cluster:
    """What the operator knows of the cluster. It is polled in the background.

    - `capabilities`: its version and optional kinds.
    - `delivery`: the delivery of a new Deployment with `delivery: Auto`.
    - `installed`: its monitoring.
    - `prometheus`: the URL of a Prometheus to query instead of the cluster's; "" without.
    - `refused_kinds`: the kinds that the operator can't read, each with the API server's answer.
    """

    capabilities: Capabilities = field(default_factory=Capabilities)
    delivery: Delivery = "Copy"
    installed: Installed = field(default_factory=Installed)
    prometheus: str = ""
    refused_kinds: Mapping[Kind, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """What the store, the prober and the cluster say about one TritonModel.

    - `raw`: the TritonModel as the API server has it; `model` is the same.
    - `before`: its status.
    - `requested`: the thresholds in its annotations.
    - `children`: the objects that it owns.
    - `groups`: its groups of servers, each with the pod template of its live Deployment. The Deployment may have lost
      its owner reference. The first group is the one that every TritonModel has.
    - `ending`: the pods of no group that it still has.
    - `lost`: owned objects that have lost their label, so that no watch reports them.
    - `unreadable`: the problem of each kind that the operator can't read.
    - `facts`: the facts of a new pod template: settings, the cluster's capabilities, and what is known of the model.
    - `installed`: the cluster's monitoring; None without, or where spec.monitoring doesn't want it.
    - `answer`: the last answer of the Prometheus that scrapes the servers; None without one.
    - `servers`: the last answers of the servers.
    - `histories`: the servers' counters, by pod; None if neither the engine nor the gate of a canary reads any.
    - `comparisons`: what the answers of the canary's servers have in common with those of the others, by pod.
    - `growing`: the servers whose memory grows steadily, by pod; None while a server hasn't been polled.
    - `changes`: uid of a server → what has become of the change of its models.
    - `time`: the time of the snapshot, by this machine's clock.
    - `refused_if_new`: what is wrong with the spec with which the servers run, as words; "" if nothing is.
    """

    model: TritonModel
    raw: Object
    before: TritonModelStatus
    requested: Thresholds
    children: tuple[Object, ...]
    groups: tuple[Group, ...]
    ending: tuple[Pod, ...]
    lost: frozenset[Identity]
    unreadable: Mapping[str, Problem]
    facts: Facts
    installed: Installed | None
    answer: PrometheusAnswer | None
    servers: ServerAnswers
    histories: Mapping[str, History] | None
    comparisons: Mapping[str, Comparison]
    growing: Mapping[str, MemoryGrowth] | None
    changes: Mapping[str, ChangeOutcome]
    time: datetime
    refused_if_new: str = ""

    @property
    def main(self) -> Group:
        """The group that every TritonModel has. Clients call its entrypoint, and autoscalers scale it."""
        return self.groups[0]

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods of all groups, and those that end."""
        return (*(pod for group in self.groups for pod in group.pods), *self.ending)

    def histories_of(self, group: Group) -> Mapping[str, History] | None:
        """Returns the counters of the servers of this group, by pod; None if none are read."""
        if self.histories is None:
            return None
        return {pod.name: self.histories[pod.name] for pod in group.living if pod.name in self.histories}

    def child(self, kind: Kind) -> Object | None:
        """Returns the first child of this kind; None if there is none."""
        return find_kind(self.children, kind)

    def child_named(self, kind: Kind, name: str) -> Object | None:
        """Returns the child of this kind and name; None if there is none."""
        return next((o for o in self.children if (o["kind"], o["metadata"]["name"]) == (kind.kind, name)), None)


def find_kind(objects: Iterable[Object], kind: Kind) -> Object | None:
    """Returns the first object of this kind; None if there is none."""
    return next((o for o in objects if o["kind"] == kind.kind), None)


def is_needed(kind: str, model: TritonModel) -> bool:
    """Returns whether the TritonModel has, or may have, objects of this kind."""
    return kind == POD.kind or BY_NAME[kind].needed(model)
