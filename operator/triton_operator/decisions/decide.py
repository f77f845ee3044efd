"""Decides what one reconcile does. Pure.

A new feature is a policy: a function in a file of its own, and a line in POLICIES, or in groups.POLICIES if it has
servers of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from triton_operator.api import kinds, names
from triton_operator.api.kinds import NewerField
from triton_operator.model_changes import LoadDecision
from triton_operator.plan import Compared, Identity, identity, is_template_of, plan
from triton_operator.pods.group import Group, deployment_of, template_of
from triton_operator.render import Facts, children, choose, newer_fields, render, template_hash
from triton_operator.render.facts import KeptTemplate
from triton_operator.scaling import ScaleDecision

from . import load_models
from .canary import with_shares
from .contests import Contested, hold_back
from .enforcement import with_enforced
from .gate import judge
from .growth import NO_REPLACEMENT, Replacement, replace_growing
from .memory import Memory
from .repair import NO_REPAIR, Repair, look, repair
from .scale import decide_scale, wake_up
from .snapshot import Object, Snapshot
from .steps import (
    ChangeModels,
    DeleteLeftoverPods,
    DeleteLeftovers,
    ReadLost,
    ReconcileAfter,
    ScaleUp,
    Step,
    WriteChildren,
)


@dataclass(frozen=True)
class ChosenGroup:
    """The decision about one group of servers.

    - `group`: the group, with the desired pod template.
    - `facts`: what the spec leaves open.
    - `load`: the decision about the models of its running servers.
    """

    group: Group
    facts: Facts
    load: LoadDecision


@dataclass(frozen=True)
class Decision:
    """What one reconcile does.

    - `groups`: the decisions about the groups of servers, in their order.
    - `desired`: the objects that the TritonModel should have.
    - `left_out`: the fields that they would have if the cluster knew them, by kind.
    - `scale`: how the operator scales the servers itself; None if the engine leaves that to its object.
    - `repair`: the decision about a server that doesn't answer.
    - `replacement`: the decision about servers whose memory grows.
    - `contested`: the planned writes, and what of them waits.
    - `memory`: what to remember if nothing is done.
    - `steps`: what to do, in this order.
    """

    groups: tuple[ChosenGroup, ...]
    desired: tuple[Object, ...]
    scale: ScaleDecision | None
    contested: Contested
    memory: Memory
    repair: Repair = NO_REPAIR
    replacement: Replacement = NO_REPLACEMENT
    steps: tuple[Step, ...] = ()
    left_out: Mapping[str, tuple[NewerField, ...]] = field(default_factory=dict)

    @property
    def facts(self) -> Facts:
        """What the spec leaves open, of the group that every TritonModel has."""
        return self.groups[0].facts

    @property
    def has_newer_template(self) -> bool:
        """Whether this version of the operator would render a different pod template for a group."""
        templates = [chosen.facts.template for chosen in self.groups]
        return any(isinstance(template, KeptTemplate) and template.newer for template in templates)

    @property
    def load(self) -> LoadDecision:
        """The decision about the models of all running servers."""
        return load_models.combined([chosen.load for chosen in self.groups])


def decide(snapshot: Snapshot, memory: Memory, elapsed: float) -> Decision:
    """Returns the decision. `elapsed`: the prober's monotonic clock, in seconds."""
    memory = memory.with_version(snapshot.facts.cluster.kubernetes)
    groups, replacement = _choose(snapshot, memory)
    load = load_models.combined([chosen.load for chosen in groups])
    scaling = decide_scale(snapshot, groups[0].facts, memory.scaling, elapsed)
    facts = replace(groups[0].facts, prometheus=scaling.known.prometheus, autoscaler_floor=scaling.known.floor)
    seen = [_with_next_template(chosen) if chosen.group.name == names.CANARY else chosen.group for chosen in groups]
    judged = judge(snapshot, seen, memory.canary, elapsed)
    weight = judged.progress.weight if judged else None
    facts = with_shares(facts, seen, snapshot.ending, snapshot.children, weight)
    facts = with_enforced(snapshot.model, facts, snapshot.child(kinds.BACKEND_TRAFFIC_POLICY))
    groups = (replace(groups[0], facts=facts), *groups[1:])
    rendered = render(snapshot.model, facts, [(chosen.group.model, chosen.facts) for chosen in groups[1:]])
    known = [newer_fields.without_lacking(children.of(obj), obj, facts.cluster.lacks) for obj in rendered]
    left_out = {obj["kind"]: fields for obj, fields in known if fields}
    desired = tuple(obj for obj, _ in known)
    groups = tuple(replace(chosen, group=_with_template(chosen.group, desired)) for chosen in groups)
    silent = look(snapshot, [chosen.group for chosen in groups], memory.silent)
    unchanged, contested = _plan(snapshot, facts, desired, memory)
    decision = Decision(
        groups=groups,
        desired=desired,
        left_out=left_out,
        scale=scaling.scale,
        # The status doesn't have the last eviction yet while that is remembered.
        repair=(
            NO_REPAIR
            if memory.evicted
            else repair(snapshot, [chosen.group for chosen in groups], silent, changes_models=load.start is not None)
        ),
        replacement=replacement,
        contested=contested,
        memory=replace(
            memory,
            rollout=load_models.replace_servers(snapshot.model, load) or memory.rollout,
            scaling=scaling.state,
            canary=judged,
            silent=silent,
            replacement=replacement.value or memory.replacement,
            unchanged=unchanged,
            contests=contested.contests,
        ),
    )
    return replace(decision, steps=tuple(step for policy in POLICIES for step in policy(snapshot, decision)))


def _choose(snapshot: Snapshot, memory: Memory) -> tuple[tuple[ChosenGroup, ...], Replacement]:
    """Returns the decisions about the groups, each with the pod template of its live Deployment.

    Also returns the decision about servers whose memory grows, which is in that of the first group.
    """
    chosen = [(group, _facts(snapshot, group)) for group in snapshot.groups]
    loads, lists = load_models.decide_changes(snapshot, chosen)
    chosen = [
        (group, _facts(snapshot, group, replace_servers=True) if load.rollout else facts)
        for (group, facts), load in zip(chosen, loads, strict=True)
    ]
    lists = load_models.with_new_lists(lists, chosen[1:])
    main, facts = chosen[0]
    replacement = replace_growing(snapshot, facts, load_models.combined(loads), memory.silent, memory.replacement)
    if replacement.value:
        chosen[0] = main, _facts(snapshot, main, memory=replacement.value)
    made = tuple(
        ChosenGroup(group, replace(facts, lists=lists), load)
        for (group, facts), load in zip(chosen, loads, strict=True)
    )
    return made, replacement


def _facts(snapshot: Snapshot, group: Group, *, replace_servers: bool = False, memory: str = "") -> Facts:
    defaults = snapshot.facts
    if group.name:
        # The last known number of servers is that of another group.
        defaults = replace(defaults, group=group.name, replicas=1)
    return choose(
        group.model, group.deployment, defaults, agrees=is_template_of, replace_servers=replace_servers, memory=memory
    )


def _with_next_template(chosen: ChosenGroup) -> Group:
    """Returns the group with the pod template that it will have."""
    return replace(chosen.group, template=template_hash(chosen.group.model, chosen.facts))


def _with_template(group: Group, desired: Iterable[Object]) -> Group:
    """Returns the group with the pod template of its desired Deployment."""
    name = names.deployment(group.model.name, group.name)
    return replace(group, template=template_of(deployment_of(desired, name)))


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


Policy = Callable[[Snapshot, Decision], Iterator[Step]]


def _wake_up(snapshot: Snapshot, decision: Decision) -> Iterator[Step]:
    if (step := wake_up(snapshot, decision.desired)) is not None:
        yield step


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


def _change_models(_: Snapshot, decision: Decision) -> Iterator[Step]:
    for chosen in decision.groups:
        if chosen.load.start is not None:
            yield ChangeModels(*chosen.load.start, tuple(chosen.group.model.spec.server.load_models))


def _scale_up(snapshot: Snapshot, decision: Decision) -> Iterator[Step]:
    if decision.scale is not None and (deployment := snapshot.main.deployment) is not None:
        yield ScaleUp(deployment, decision.scale)


def _repair(_: Snapshot, decision: Decision) -> Iterator[Step]:
    if decision.repair.step is not None:
        yield decision.repair.step


def _replace_growing(_: Snapshot, decision: Decision) -> Iterator[Step]:
    """The replacement itself is a change of the Deployment."""
    if decision.replacement.after is not None:
        yield ReconcileAfter(decision.replacement.after)


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
    _replace_growing,
    _delete_leftover_pods,
)
"""In the order in which their steps are done."""
