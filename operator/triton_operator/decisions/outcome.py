"""What the writes of one reconcile have done."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime

from triton_operator.api.kinds import NewerField
from triton_operator.api.status import RepairStatus
from triton_operator.plan import Applied, Identity
from triton_operator.pods import Problem

from .contests import Place, count
from .internal_error import internal_error
from .memory import Memory

Refusal = tuple[datetime, Problem]
"""Until when no server is evicted, because the API server has refused it, and the problem."""


@dataclass(frozen=True)
class Eviction:
    """What became of an eviction: neither if the server was gone, or has changed.

    `evicted`: the server that was evicted.
    """

    evicted: RepairStatus | None = None
    refusal: Refusal | None = None


@dataclass
class Outcome:
    """What the writes of one reconcile have done. A refused write is a value here, and stops no independent one.

    Only an API server that doesn't answer, or asks to wait, ends the reconcile: everything else would fail too.

    - `hidden`: sensitive values, which messages of the API server may quote.
    - `kubernetes`: the cluster's major and minor version; (0, 0) if it isn't known.
    - `refused`: the problem of a refused write, by kind.
    - `left_out`: the fields that the cluster turned out not to know, by kind.
    - `failed`: whether a step ended with an exception that nothing expects.
    - `states`: versions of the written objects.
    - `applied`: the records of the applied objects. `set_back`: where they have undone changes by other writers.
    - `writers`: the paths and the field managers of other writers, see `Contest`.
    - `eviction`: what became of the eviction of a server; None if none was due.
    - `cleaned_up`: uids of the Deployments for which leftover pods are deleted; None if none were looked for.
    - `outside_cause`: a write was refused for a cause outside of the object, which may end at any moment:
      permissions, a quota, or a webhook that is down.
    - `blocked`: objects that aren't written now, each with its problem: leftovers of a deleted TritonModel, and what
      needs a step that was refused. `grace`: the remaining seconds in which leftovers are left to Kubernetes' garbage
      collector.
    - `requeue_after`: seconds after which to reconcile again; None if the watches report every change.
    """

    hidden: Collection[str] = ()
    kubernetes: tuple[int, int] = (0, 0)
    refused: dict[str, Problem] = field(default_factory=dict)
    left_out: dict[str, tuple[NewerField, ...]] = field(default_factory=dict)
    failed: bool = False
    states: set[str] = field(default_factory=set)
    applied: dict[Identity, Applied] = field(default_factory=dict)
    set_back: tuple[Place, ...] = ()
    writers: dict[Place, tuple[str, str]] = field(default_factory=dict)
    eviction: Eviction | None = None
    cleaned_up: frozenset[str] | None = None
    outside_cause: bool = False
    blocked: dict[Identity, Problem] = field(default_factory=dict)
    grace: float = 0
    requeue_after: float | None = None

    def reconcile_after(self, seconds: float | None) -> None:
        """Reconciles again after `seconds`, or earlier; None: no need."""
        self.requeue_after = min((s for s in (self.requeue_after, seconds) if s is not None), default=None)

    def refuse(self, kind: str, problem: Problem, *, may_end: bool = False) -> None:
        """Records that a write of an object of this kind was refused. `may_end`: see `outside_cause`."""
        self.outside_cause = self.outside_cause or may_end
        self.refused.setdefault(kind, problem)

    def remember(self, memory: Memory, now: datetime) -> Memory:
        """Returns the memory after this outcome. `memory`: that of the decision. `now`: the time of the snapshot."""
        contests = count(self.set_back, memory.contests, now)
        for place, (path, writer) in self.writers.items():
            contests[place] = replace(contests[place], path=path, writer=writer)
        return replace(
            memory,
            applied={**memory.applied, **self.applied},
            contests=contests,
            evicted=self.eviction.evicted if self.eviction else memory.evicted,
            eviction_refusal=self.eviction.refusal if self.eviction else memory.eviction_refusal,
            cleaned_up=memory.cleaned_up if self.cleaned_up is None else self.cleaned_up,
        )

    def fail(self, action: str, error: Exception, kind: str = "") -> None:
        """Records a fault of the operator itself. `action`: what failed, as a phrase. `kind`: of the object, if any."""
        self.failed = True
        problem = internal_error(action, error, "The other steps are done, and the servers that are there keep running")
        # Under no kind, so that Progressing has it, and not only the condition that is about this kind.
        for name in {kind, ""}:
            self.refused.setdefault(name, problem)
