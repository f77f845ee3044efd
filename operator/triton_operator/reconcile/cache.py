"""The reconciler's cache for one TritonModel. It only saves work: a new leader starts with an empty one."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from triton_operator.api.status import RepairStatus, TritonModelStatus
from triton_operator.plan import Applied, Compared, Identity
from triton_operator.pods import Problem
from triton_operator.scaling import State

from .contests import Contest, Place


@dataclass
class ReconcileCache:
    """The results of earlier reconciles of one TritonModel. Not thread-safe: one thread at a time reconciles it.

    - `applied`, `unchanged`: see `plan`.
    - `contests`: the fields that another writer changes, see `contests`.
    - `due`: the earliest time of the next status update that isn't urgent. None before the first one.
    - `pending`: the time since which a server's answer has been missing.
    - `scaling`: the state of the engine Direct; None before its first decision.
    - `rollout`: why a change of spec.server.loadModels replaces the servers, "" if it doesn't.
    - `generation`: the generation of the spec that was last reconciled; 0 before the first reconcile. `pods_spec`: the
      hash of its fields that concern pods.
    - `evicted`: the server that was evicted, until it is in the status.
    - `reported_repairs`: the server and the time of each repair that is visible and was reported; None before the first
      look.
    - `eviction_refusal`: until when no server is evicted, because the API server has refused it, and the problem.
    - `stopped`: uid of a pod → since when the operator has seen that its server doesn't answer.
    - `not_ready`: uid of such a pod → when its server has last said that it isn't ready.
    - `start`: the hash of a pod template, and the shortest time in which a server of it became ready, in seconds.
    - `merged`: the last status that was written, and what became of it, because another field manager has items in it.
    - `kubernetes`: the cluster's version at the last reconcile.
    - `cleaned_up`: uid of the Deployment for which leftover pods were already deleted.
    """

    applied: dict[Identity, Applied] = field(default_factory=dict)
    unchanged: dict[Identity, Compared] = field(default_factory=dict)
    contests: dict[Place, Contest] = field(default_factory=dict)
    due: datetime | None = None
    pending: datetime | None = None
    scaling: State | None = None
    rollout: str = ""
    generation: int = 0
    pods_spec: str = ""
    evicted: RepairStatus | None = None
    reported_repairs: set[tuple[str, str]] | None = None
    eviction_refusal: tuple[datetime, Problem] | None = None
    stopped: dict[str, datetime] = field(default_factory=dict)
    not_ready: dict[str, datetime] = field(default_factory=dict)
    start: tuple[str, float] | None = None
    merged: tuple[TritonModelStatus, TritonModelStatus] | None = None
    kubernetes: tuple[int, int] = (0, 0)
    cleaned_up: str = ""

    def use_version(self, kubernetes: tuple[int, int]) -> None:
        """Forgets objects with a field that the API server dropped, if it has another version now."""
        if kubernetes == self.kubernetes:
            return
        self.kubernetes = kubernetes
        for identity in [identity for identity, applied in self.applied.items() if applied.dropped]:
            del self.applied[identity]
            self.unchanged.pop(identity, None)
