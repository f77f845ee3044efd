"""Decides what one reconcile does. Pure.

A new feature is a policy: a function in a file of its own, and a line in POLICIES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from triton_operator.api import kinds, names
from triton_operator.model_changes import LoadDecision
from triton_operator.plan import Compared, Identity, identity, is_template_of, plan
from triton_operator.render import Facts, children, choose, newer_fields, render
from triton_operator.render.child_type import NewerField
from triton_operator.scaling import ScaleDecision

from . import load_models
from .contests import Contested, hold_back
from .direct import decide_scale
from .memory import Memory
from .repair import NO_REPAIR, Repair, look, repair
from .snapshot import Object, Snapshot, find_kind
from .steps import (
    ChangeModels,
    DeleteLeftoverPods,
    DeleteLeftovers,
    ReadLost,
    ReconcileAfter,
    ScaleUp,
    Step,
    WakeUp,
    WriteChildren,
)


@dataclass(frozen=True)
class Decision:
    """What one reconcile does.

    Attributes:
        facts: what the spec leaves open.
        desired: the objects that the TritonModel should have.
        left_out: the fields that they would have if the cluster knew them, by kind.
        load: the decision about the models of the running servers.
        scale: the decision of the engine Direct; None with another engine.
        repair: the decision about a server that doesn't answer.
        contested: the planned writes, and what of them waits.
        memory: what to remember if nothing is done.
        steps: what to do, in this order.
    """

    facts: Facts
    desired: tuple[Object, ...]
    load: LoadDecision
    scale: ScaleDecision | None
    contested: Contested
    memory: Memory
    repair: Repair = NO_REPAIR
    steps: tuple[Step, ...] = ()
    left_out: Mapping[str, tuple[NewerField, ...]] = field(default_factory=dict)

    @property
    def template_hash(self) -> str:
        """The hash of the desired pod template."""
        return _template(self.desired)


def decide(snapshot: Snapshot, memory: Memory, elapsed: float) -> Decision:
    """Returns the decision. `elapsed`: the prober's monotonic clock, in seconds."""
    memory = memory.with_version(snapshot.facts.cluster.kubernetes)
    facts, load = _choose(snapshot)
    scaling, scale = decide_scale(snapshot, memory.scaling, elapsed)
    rendered = render(snapshot.model, replace(facts, autoscaler_floor=0 if scale is None else scale.floor))
    known = [newer_fields.without_lacking(children.of(obj), obj, facts.cluster.lacks) for obj in rendered]
    left_out = {obj["kind"]: fields for obj, fields in known if fields}
    desired = tuple(obj for obj, _ in known)
    template = _template(desired)
    silent = look(snapshot, template, memory.silent)
    unchanged, contested = _plan(snapshot, facts, desired, memory)
    decision = Decision(
        facts=facts,
        desired=desired,
        left_out=left_out,
        load=load,
        scale=scale,
        # The status doesn't have the last eviction yet while that is remembered.
        repair=(
            NO_REPAIR if memory.evicted else repair(snapshot, template, silent, changes_models=load.start is not None)
        ),
        contested=contested,
        memory=replace(
            memory,
            rollout=load_models.replace_servers(snapshot.model, load) or memory.rollout,
            scaling=scaling,
            silent=silent,
            unchanged=unchanged,
            contests=contested.contests,
        ),
    )
    return replace(decision, steps=tuple(step for policy in POLICIES for step in policy(snapshot, decision)))


def _choose(snapshot: Snapshot) -> tuple[Facts, LoadDecision]:
    """Returns the facts for rendering, and the decision about the models of running servers."""
    facts = choose(snapshot.model, snapshot.deployment, snapshot.facts, agrees=is_template_of)
    load, lists = load_models.decide_change(snapshot, facts)
    if load.rollout:
        facts = choose(snapshot.model, snapshot.deployment, snapshot.facts, agrees=is_template_of, replace_servers=True)
    return replace(facts, lists=lists), load


def _plan(
    snapshot: Snapshot, facts: Facts, desired: tuple[Object, ...], memory: Memory
) -> tuple[Mapping[Identity, Compared], Contested]:
    """Returns the next `Memory.unchanged`, and the writes."""
    live = snapshot.children
    if not facts.entrypoint and snapshot.model.spec.monitoring.enabled:
        # Keep the alerts until the entrypoint is known.
        live = tuple(obj for obj in live if not children.of(obj).needs_entrypoint)
    # Of a kind that can't be read the live objects may be old, so none is applied and none is deleted.
    wanted, there = (
        tuple(obj for obj in objects if obj["kind"] not in snapshot.unreadable) for objects in (desired, live)
    )
    planned = plan(wanted, there, memory.applied, memory.unchanged)
    return planned.unchanged, hold_back(planned.writes, memory.applied, memory.contests, snapshot.time)


def _template(desired: Iterable[Object]) -> str:
    deployment = find_kind(desired, kinds.DEPLOYMENT) or {}
    return str(deployment["metadata"]["annotations"][names.ANNOTATION_TEMPLATE])


Policy = Callable[[Snapshot, Decision], Iterator[Step]]


def _wake_up(snapshot: Snapshot, _: Decision) -> Iterator[Step]:
    """Starts the minimum of servers if KEDA has scaled to zero and another engine follows.

    A HorizontalPodAutoscaler never scales from zero. This comes before the ScaledObject is deleted and for as long as
    it exists, because until then KEDA may scale to zero again.
    """
    scaling, scaled_object = snapshot.model.scaling, snapshot.child(kinds.SCALED_OBJECT)
    if scaling is None or snapshot.model.is_keda or snapshot.deployment is None or scaled_object is None:
        return
    if not snapshot.deployment["spec"]["replicas"] and not scaled_object["spec"].get("minReplicaCount"):
        yield WakeUp(snapshot.deployment, scaling.min)


def _read_lost(snapshot: Snapshot, decision: Decision) -> Iterator[Step]:
    """Desired objects are found when they are applied."""
    if undesired := snapshot.lost - {identity(obj) for obj in decision.desired}:
        yield ReadLost(tuple(sorted(undesired)))


def _delete_leftovers(_: Snapshot, __: Decision) -> Iterator[Step]:
    yield DeleteLeftovers()


def _write_children(_: Snapshot, decision: Decision) -> Iterator[Step]:
    contested = decision.contested
    if contested.writes or contested.held:
        yield WriteChildren(contested.writes, contested.set_back, contested.held)
    if contested.requeue_after is not None:
        yield ReconcileAfter(contested.requeue_after)


def _change_models(snapshot: Snapshot, decision: Decision) -> Iterator[Step]:
    if decision.load.start is not None:
        yield ChangeModels(*decision.load.start, tuple(snapshot.model.spec.server.load_models))


def _scale_up(snapshot: Snapshot, decision: Decision) -> Iterator[Step]:
    if decision.scale is not None and snapshot.deployment is not None:
        yield ScaleUp(snapshot.deployment, decision.scale)


def _repair(_: Snapshot, decision: Decision) -> Iterator[Step]:
    if decision.repair.step is not None:
        yield decision.repair.step


def _delete_leftover_pods(_: Snapshot, __: Decision) -> Iterator[Step]:
    yield DeleteLeftoverPods()


POLICIES: tuple[Policy, ...] = (
    _wake_up,
    _read_lost,
    _delete_leftovers,
    _write_children,
    _change_models,
    _scale_up,
    _repair,
    _delete_leftover_pods,
)
"""In the order in which their steps are done."""
