"""Groups of servers: each is a Deployment with its pods.

Every TritonModel has one group, without a name. docs/decisions/0048-groups-of-servers.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.types import TritonModel

from .pod import Pod

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Servers:
    """The servers of one Deployment, as they are.

    - `deployment`: None if there is none. `pods`: in any state.
    - `template`: the hash of the pod template that the servers should have; "" if that isn't known.
    """

    deployment: dict[str, Any] | None = None
    pods: tuple[Pod, ...] = ()
    template: str = ""

    @property
    def living(self) -> list[Pod]:
        """The pods that neither are being deleted nor have ended."""
        return [pod for pod in self.pods if pod.is_alive]

    @property
    def current(self) -> list[Pod]:
        """Those of them that have the current pod template."""
        return [pod for pod in self.living if pod.is_current(self.template)]

    @property
    def desired(self) -> int:
        """The desired number of servers."""
        return int((self.deployment or {}).get("spec", {}).get("replicas", 1))

    @property
    def is_paused(self) -> bool:
        """Whether someone has paused the Deployment."""
        return bool((self.deployment or {}).get("spec", {}).get("paused"))

    @property
    def refusal(self) -> str | None:
        """Why the API server refuses the pods, such as a quota; None if it doesn't."""
        conditions = (self.deployment or {}).get("status", {}).get("conditions", [])
        failure = next((c for c in conditions if c["type"] == "ReplicaFailure" and c["status"] == "True"), None)
        return None if failure is None else str(failure.get("message", ""))

    @property
    def is_complete(self) -> bool:
        """Whether all servers are ready and have the current pod template."""
        if self.deployment is None:
            return False
        generation: int = self.deployment.get("status", {}).get("observedGeneration", 0)
        living = self.living
        return (
            generation >= self.deployment["metadata"].get("generation", 0)
            and len(living) == self.desired
            and all(pod.is_ready and pod.is_current(self.template) for pod in living)
        )


@dataclass(frozen=True, kw_only=True)
class Group(Servers):
    """The servers of one Deployment, as they are and as they should be.

    - `name`: "" for the group that every TritonModel has.
    - `model`: the TritonModel as these servers should have it. Only its fields that concern pods, and spec.replicas,
      may differ from those of other groups.
    """

    model: TritonModel
    name: str = ""


def by_group(pods: Iterable[Pod]) -> dict[str, tuple[Pod, ...]]:
    """Returns the pods by the names of their groups. That of every TritonModel is there also without pods."""
    groups: dict[str, list[Pod]] = {"": []}
    for pod in pods:
        groups.setdefault(pod.group, []).append(pod)
    return {group: tuple(mine) for group, mine in groups.items()}


def template_of(deployment: Object | None) -> str:
    """Returns the hash of the pod template of the Deployment; "" without one."""
    metadata = (deployment or {}).get("metadata", {})
    return str(metadata.get("annotations", {}).get(names.ANNOTATION_TEMPLATE, ""))


def deployment_of(objects: Iterable[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """Returns the Deployment with this name; None if there is none."""
    return next((o for o in objects if o["kind"] == kinds.DEPLOYMENT.kind and o["metadata"]["name"] == name), None)
