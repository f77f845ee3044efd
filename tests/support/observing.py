"""What a reconcile has seen, decided and done, written without its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from triton_operator.api import thresholds
from triton_operator.api.kinds import SCALED_OBJECT
from triton_operator.api.servers import ServerAnswers
from triton_operator.api.status import RepairStatus, TritonModelStatus
from triton_operator.api.types import TritonModel
from triton_operator.decisions.contests import Contested
from triton_operator.decisions.decide import ChosenGroup, Decision
from triton_operator.decisions.memory import Memory
from triton_operator.decisions.outcome import Eviction, Outcome
from triton_operator.decisions.repair import Repair
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.model_changes import LoadDecision
from triton_operator.plan import Applied, identity
from triton_operator.pods import Pod, Problem
from triton_operator.pods.group import Group
from triton_operator.render import Facts
from triton_operator.render.facts import Capabilities
from triton_operator.scaling import ScaleDecision

from . import gen

Object = dict[str, Any]
Seen = tuple[Snapshot, Decision, Outcome]


def seen(
    model: TritonModel,
    before: TritonModelStatus | None = None,
    *,
    deployment: Object | None = None,
    pods: tuple[Pod, ...] = (),
    autoscaler: Object | None = None,
    scaled_object: Object | None = None,
    routes: tuple[Object, ...] = (),
    kubernetes: tuple[int, int] = (0, 0),
    keda: bool = True,
    refused: Mapping[str, Problem] | None = None,
    dropped: Mapping[str, tuple[str, ...]] | None = None,
    evicted: RepairStatus | None = None,
    repair: str = "",
    load: LoadDecision | None = None,
    scale: ScaleDecision | None = None,
    rollout: str = "",
    facts: Mapping[str, Any] | None = None,
    **snapshot: Any,
) -> Seen:
    """Returns the input of `assess` for a TritonModel with one group of servers.

    - `routes`: the children that route requests from outside of the cluster.
    - `dropped`: kind → paths of fields that the API server didn't store.
    - `facts`: what is known of it. `snapshot`: further fields of the snapshot, and those of the servers' answers.
    """
    capabilities = Capabilities(missing=frozenset() if keda else frozenset({SCALED_OBJECT}), kubernetes=kubernetes)
    known = replace(Facts("tools:1", "Copy", cluster=capabilities), **(facts or {}))
    group = Group(deployment, pods, gen.TEMPLATE, model=model)
    answers = {name: snapshot.pop(name) for name in ServerAnswers.__dataclass_fields__ if name in snapshot}
    desired = tuple({"kind": kind, "metadata": {"name": model.name}} for kind in dropped or {})
    memory = Memory(
        rollout=rollout,
        applied={
            identity(obj): Applied("", b"", b"", dropped=(dropped or {})[obj["kind"]]) for obj in desired
        },
    )  # fmt: skip
    defaults: Object = {
        "raw": {}, "requested": thresholds.Thresholds({}), "lost": frozenset(), "unreadable": {}, "installed": None,
        "answer": None, "histories": None, "comparisons": {}, "growing": {}, "changes": {},
        "time": datetime(2026, 1, 1, tzinfo=UTC),
    }  # fmt: skip
    there = Snapshot(
        model=model,
        before=before or TritonModelStatus(),
        children=(
            *(
                {"kind": kind, **obj}
                for kind, obj in (("HorizontalPodAutoscaler", autoscaler), ("ScaledObject", scaled_object))
                if obj is not None
            ),
            *routes,
        ),
        groups=(group,),
        ending=(),
        facts=known,
        servers=ServerAnswers(**answers),
        **{**defaults, **snapshot},
    )
    decision = Decision(
        groups=(ChosenGroup(group, known, load or LoadDecision()),),
        desired=desired,
        scale=scale,
        contested=Contested(()),
        memory=memory,
        repair=Repair(note=repair),
    )
    outcome = Outcome(refused=dict(refused or {}), eviction=Eviction(evicted) if evicted else None)
    return there, decision, outcome
