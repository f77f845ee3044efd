"""What became of the objects of a TritonModel: which writes were refused or wait, and what is missing in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from triton_operator.api.kinds import NewerField
from triton_operator.decisions.contests import problems
from triton_operator.decisions.decide import Decision
from triton_operator.decisions.memory import Memory
from triton_operator.decisions.outcome import Outcome
from triton_operator.decisions.snapshot import Snapshot, is_needed
from triton_operator.plan import identity
from triton_operator.pods import Problem
from triton_operator.render.children import CHILDREN


@dataclass(frozen=True)
class Writes:
    """What became of the objects, by their kind.

    - `refused`: why they aren't written, or can't be read.
    - `contested`: which labels or annotations another writer changes again and again.
    - `dropped`: the paths of fields that the API server didn't store.
    - `left_out`: the fields that they would have if the cluster's CRD knew them.
    """

    refused: Mapping[str, Problem] = field(default_factory=dict)
    contested: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: Mapping[str, tuple[NewerField, ...]] = field(default_factory=dict)

    def refusal(self, condition: str) -> Problem | None:
        """Returns the first refused write of an object that this condition reports on."""
        refusals = (self.refused.get(child.kind.kind) for child in CHILDREN if child.condition == condition)
        return next((problem for problem in refusals if problem), None)


def writes_of(snapshot: Snapshot, decision: Decision, outcome: Outcome, memory: Memory) -> Writes:
    """Returns what became of the objects. `memory`: after the outcome."""
    unreadable = {kind: p for kind, p in snapshot.unreadable.items() if is_needed(kind, snapshot.model)}
    waiting, contested = problems(memory.contests, snapshot.time)
    records = [(obj["kind"], memory.applied.get(identity(obj))) for obj in decision.desired]
    return Writes(
        refused={**waiting, **outcome.refused, **unreadable},
        contested=contested,
        dropped={kind: record.dropped for kind, record in records if record is not None and record.dropped},
        left_out={
            kind: (*decision.left_out.get(kind, ()), *outcome.left_out.get(kind, ()))
            for kind in {**decision.left_out, **outcome.left_out}
        },
    )
