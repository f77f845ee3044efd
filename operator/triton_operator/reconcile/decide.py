"""Decides what one reconcile does. Pure, except that it keeps its results in the cache.

A new feature is a policy: a function in a file of its own, and a line in POLICIES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from triton_operator.api import kinds, names
from triton_operator.model_changes import LoadDecision
from triton_operator.plan import identity, is_template_of, plan
from triton_operator.render import Choices, children, choose, newer_fields, render
from triton_operator.render.child_type import NewerField
from triton_operator.scaling import ScaleDecision

from . import load_models
from .cache import ReconcileCache
from .contests import hold_back
from .direct import decide_scale
from .repair import NO_REPAIR, Repair, repair
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
        choices: what the spec leaves open.
        desired: the objects that the TritonModel should have.
        left_out: the fields that they would have if the cluster knew them, by kind.
        load: the decision about the models of the running servers.
        scale: the decision of the engine Direct; None with another engine.
        repair: the decision about a server that doesn't answer.
        steps: what to do, in this order.
    """

    choices: Choices
    desired: tuple[Object, ...]
    load: LoadDecision
    scale: ScaleDecision | None
    repair: Repair = NO_REPAIR
    steps: tuple[Step, ...] = ()
    left_out: Mapping[str, tuple[NewerField, ...]] = field(default_factory=dict)

    @property
    def template(self) -> str:
        """The hash of the desired pod template."""
        deployment = find_kind(self.desired, kinds.DEPLOYMENT) or {}
        return str(deployment["metadata"]["annotations"][names.ANNOTATION_TEMPLATE])


def decide(snapshot: Snapshot, cache: ReconcileCache, elapsed: float) -> Decision:
    """Returns the decision. `elapsed`: the prober's monotonic clock, in seconds."""
    cache.use_version(snapshot.fresh.cluster.kubernetes)
    choices, load = _choose(snapshot)
    cache.rollout = load_models.replace_servers(snapshot.model, load) or cache.rollout
    scale = decide_scale(snapshot, cache, elapsed)
    rendered = render(snapshot.model, replace(choices, autoscaler_floor=0 if scale is None else scale.floor))
    known = [newer_fields.without_lacking(children.of(obj), obj, choices.cluster.lacks) for obj in rendered]
    left_out = {obj["kind"]: fields for obj, fields in known if fields}
    decision = Decision(choices, tuple(obj for obj, _ in known), load, scale, left_out=left_out)
    # The status doesn't have the last eviction yet while that is in the cache.
    if cache.evicted is None:
        changing = load.start is not None
        decision = replace(decision, repair=repair(snapshot, decision.template, cache, changes_models=changing))
    return replace(decision, steps=tuple(step for policy in POLICIES for step in policy(snapshot, decision, cache)))


def _choose(snapshot: Snapshot) -> tuple[Choices, LoadDecision]:
    """Returns the choices for rendering, and the decision about the models of running servers."""
    choices = choose(snapshot.model, snapshot.deployment, snapshot.fresh, agrees=is_template_of)
    load, lists = load_models.decide_change(snapshot, choices)
    if load.rollout:
        choices = choose(
            snapshot.model, snapshot.deployment, snapshot.fresh, agrees=is_template_of, replace_servers=True
        )
    return replace(choices, lists=lists), load


Policy = Callable[[Snapshot, Decision, ReconcileCache], Iterator[Step]]


def _wake_up(snapshot: Snapshot, _: Decision, __: ReconcileCache) -> Iterator[Step]:
    """Starts the minimum of servers if KEDA has scaled to zero and another engine follows.

    A HorizontalPodAutoscaler never scales from zero. This comes before the ScaledObject is deleted and for as long as
    it exists, because until then KEDA may scale to zero again.
    """
    scaling, scaled_object = snapshot.model.scaling, snapshot.child(kinds.SCALED_OBJECT)
    if scaling is None or snapshot.model.is_keda or snapshot.deployment is None or scaled_object is None:
        return
    if not snapshot.deployment["spec"]["replicas"] and not scaled_object["spec"].get("minReplicaCount"):
        yield WakeUp(snapshot.deployment, scaling.min)


def _read_lost(snapshot: Snapshot, decision: Decision, _: ReconcileCache) -> Iterator[Step]:
    """Desired objects are found when they are applied."""
    if undesired := snapshot.lost - {identity(obj) for obj in decision.desired}:
        yield ReadLost(tuple(sorted(undesired)))


def _delete_leftovers(_: Snapshot, __: Decision, ___: ReconcileCache) -> Iterator[Step]:
    yield DeleteLeftovers()


def _write_children(snapshot: Snapshot, decision: Decision, cache: ReconcileCache) -> Iterator[Step]:
    live = snapshot.children
    if not decision.choices.entrypoint and snapshot.model.spec.monitoring.enabled:
        # Keep the alerts until the entrypoint is known.
        live = tuple(obj for obj in live if not children.of(obj).needs_entrypoint)
    # Of a kind that can't be read the live objects may be old, so none is applied and none is deleted.
    desired, live = (
        tuple(obj for obj in objects if obj["kind"] not in snapshot.unreadable) for objects in (decision.desired, live)
    )
    contested = hold_back(
        plan(desired, live, cache.applied, cache.unchanged), cache.applied, cache.contests, snapshot.time
    )
    if contested.writes or contested.held:
        yield WriteChildren(contested.writes, contested.set_back, contested.held)
    if contested.again is not None:
        yield ReconcileAfter(contested.again)


def _change_models(snapshot: Snapshot, decision: Decision, _: ReconcileCache) -> Iterator[Step]:
    if decision.load.start is not None:
        yield ChangeModels(*decision.load.start, tuple(snapshot.model.spec.server.load_models))


def _scale_up(snapshot: Snapshot, decision: Decision, _: ReconcileCache) -> Iterator[Step]:
    if decision.scale is not None and snapshot.deployment is not None:
        yield ScaleUp(snapshot.deployment, decision.scale)


def _repair(_: Snapshot, decision: Decision, __: ReconcileCache) -> Iterator[Step]:
    if decision.repair.step is not None:
        yield decision.repair.step


def _delete_leftover_pods(_: Snapshot, __: Decision, ___: ReconcileCache) -> Iterator[Step]:
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
