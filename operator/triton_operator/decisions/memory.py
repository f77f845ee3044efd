"""What the reconciler remembers of one TritonModel. It only saves work: a new leader starts without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from triton_operator.api.status import RepairStatus, TritonModelStatus
from triton_operator.plan import Applied, Compared, Identity
from triton_operator.pods import Problem

from .contests import Contest, Place
from .gate import Judged


@dataclass(frozen=True)
class SilentServers:
    """What was seen of servers that don't answer spec.healthRequest.

    - `stopped`: uid of a pod → since when the operator has seen that its server doesn't answer.
    - `not_ready`: uid of such a pod → when its server has last said that it isn't ready.
    - `starts`: the hash of a pod template → the shortest time in which a server of it became ready, in seconds.
    """

    stopped: Mapping[str, datetime] = field(default_factory=dict)
    not_ready: Mapping[str, datetime] = field(default_factory=dict)
    starts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Memory:
    """The results of earlier reconciles of one TritonModel. Only the reconciler replaces it.

    - `applied`, `unchanged`: see `plan`.
    - `contests`: the fields that another writer changes, see `contests`.
    - `due`: the earliest time of the next status update that isn't urgent. None before the first one.
    - `pending`: the time since which a server's answer has been missing.
    - `scaling`: what the engine remembers; None before its first decision.
    - `canary`: what is known of the canary; None without one.
    - `rollout`: why a change of spec.server.loadModels replaces the servers, "" if it doesn't.
    - `generation`: the generation of the spec that was last reconciled; 0 before the first reconcile. `pods_spec`: the
      hash of its fields that concern pods.
    - `silent`: the servers that don't answer.
    - `replacement`: why all servers were last to be replaced, the value of ANNOTATION_MEMORY; "" if they never were.
    - `evicted`: the server that was evicted, until it is in the status.
    - `eviction_refusal`: until when no server is evicted, because the API server has refused it, and the problem.
    - `reported_repairs`: the server and the time of each repair that is visible and was reported; None before the first
      look.
    - `merged`: the last status that was written, and what became of it, because another field manager has items in it.
    - `kubernetes`: the cluster's version at the last reconcile.
    - `cleaned_up`: uids of the Deployments for which leftover pods were already deleted.
    """

    applied: Mapping[Identity, Applied] = field(default_factory=dict)
    unchanged: Mapping[Identity, Compared] = field(default_factory=dict)
    contests: Mapping[Place, Contest] = field(default_factory=dict)
    due: datetime | None = None
    pending: datetime | None = None
    scaling: object | None = None
    canary: Judged | None = None
    rollout: str = ""
    generation: int = 0
    pods_spec: str = ""
    silent: SilentServers = field(default_factory=SilentServers)
    replacement: str = ""
    evicted: RepairStatus | None = None
    eviction_refusal: tuple[datetime, Problem] | None = None
    reported_repairs: frozenset[tuple[str, str]] | None = None
    merged: tuple[TritonModelStatus, TritonModelStatus] | None = None
    kubernetes: tuple[int, int] = (0, 0)
    cleaned_up: frozenset[str] = frozenset()

    def with_version(self, kubernetes: tuple[int, int]) -> Memory:
        """Returns the memory for this version of the cluster.

        In another version it has no object with a field that the API server dropped.
        """
        if kubernetes == self.kubernetes:
            return self
        dropped = {identity for identity, applied in self.applied.items() if applied.dropped}
        return replace(
            self,
            kubernetes=kubernetes,
            applied={identity: applied for identity, applied in self.applied.items() if identity not in dropped},
            unchanged={identity: compared for identity, compared in self.unchanged.items() if identity not in dropped},
        )
