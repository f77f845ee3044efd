"""Brings a change of spec.server.loadModels to the running servers, and then to the ones that start later. Pure.

docs/decisions/0039-load-models-in-a-configmap.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from triton_operator.api import kinds, secrets
from triton_operator.api.servers import ChangeOutcome
from triton_operator.api.types import TritonModel
from triton_operator.model_changes import LoadDecision, change, decide
from triton_operator.pods.group import Group
from triton_operator.render import Facts, model_lists, template_hash
from triton_operator.render.facts import Models
from triton_operator.render.template_choice import models_hash

from .snapshot import Snapshot

_MAX_OTHERS = 512
"""Maximum number of models that were in the spec before. Older ones are forgotten, and stay where they are loaded."""
_MAX_UNUSED = 3
"""Maximum number of lists that no pod has during a rollout: the Deployment may start a server of its template."""


def decide_changes(
    snapshot: Snapshot, chosen: Sequence[tuple[Group, Facts]]
) -> tuple[list[LoadDecision], dict[str, Models]]:
    """Returns the decision about the running servers of each group, and what the ConfigMap says from now on.

    Servers that start load the new models when all others have them, so that a model that doesn't load can't keep a
    server from starting. Servers of another pod template keep their list, and are about to be replaced.

    `chosen`: the groups, each with its facts.
    """
    lists = model_lists.read(snapshot.child(kinds.CONFIG_MAP))
    current = [
        (replace(group, template=template_hash(group.model, facts)), facts, model_lists.key(group.model, facts))
        for group, facts in chosen
    ]
    decided = [_decide(snapshot, group, facts, key, lists) for group, facts, key in current]
    kept = {at: lists[at] for at in _needed(lists, snapshot, [group for group, _, _ in current])}
    own = {key: record for (_, _, key), (_, record) in zip(current, decided, strict=True) if record is not None}
    return _one_at_a_time([decision for decision, _ in decided], snapshot.changes), {**kept, **own}


def _decide(
    snapshot: Snapshot, group: Group, facts: Facts, key: str, lists: Mapping[str, Models]
) -> tuple[LoadDecision, Models | None]:
    """Returns the decision about one group, and its list; None if its pod template has none."""
    if not key:
        return LoadDecision(), None
    model = group.model
    models = tuple(model.spec.server.load_models)
    record = lists.get(key) or Models(models)
    seconds, entrypoint = float(model.spec.rollout.startup_seconds), model.spec.entrypoint or ""
    indexes = snapshot.servers.indexes
    current = [s for pod in group.current if (s := pod.server)]
    changes = {s.uid: change(indexes[s.pod], models, record, entrypoint, seconds) for s in current if s.pod in indexes}
    # A server that hasn't answered yet counts while the spec and the ConfigMap differ.
    servers = [(s, changes.get(s.uid)) for s in current if s.uid in changes or set(record.listed) != set(models)]
    uids = {server.uid for server in current}
    decision = decide(servers, {uid: outcome for uid, outcome in snapshot.changes.items() if uid in uids})
    if decision.rollout and facts.template.replaced == models_hash(model):
        # A server that restarted in its pod. The servers were replaced already.
        decision = replace(decision, rollout="", failure=decision.rollout, refused=True)
    if decision.rollout:
        # The new servers get a list of their own.
        return decision, record
    listed = record.listed if decision.left else models
    others = [name for name in dict.fromkeys((*models, *record.all)) if name not in listed]
    if not decision.left:
        others = [name for name in others if _may_be_loaded(name, snapshot)]
    return decision, Models(listed, tuple(others[:_MAX_OTHERS]))


def _one_at_a_time(decisions: Sequence[LoadDecision], changes: Mapping[str, ChangeOutcome]) -> list[LoadDecision]:
    """Returns the decisions, of which only one changes a server: the first that already does, or the first one."""
    starting = [decision for decision in decisions if decision.start is not None]
    starting.sort(key=lambda decision: decision.start is None or decision.start[0].uid not in changes)
    return [replace(d, start=None) if d in starting[1:] else d for d in decisions]


def combined(decisions: Sequence[LoadDecision]) -> LoadDecision:
    """Returns the decisions about all groups as one."""
    if len(decisions) == 1:
        return decisions[0]
    return LoadDecision(
        start=next((d.start for d in decisions if d.start is not None), None),
        rollout=next((d.rollout for d in decisions if d.rollout), ""),
        failure=next((d.failure for d in decisions if d.failure), ""),
        refused=any(d.refused for d in decisions),
        left=sum(d.left for d in decisions),
    )


def with_new_lists(lists: Mapping[str, Models], chosen: Iterable[tuple[Group, Facts]]) -> dict[str, Models]:
    """Returns the lists, also of pod templates that no server has yet. `chosen`: as for `decide_changes`."""
    new = {
        key: Models(tuple(group.model.spec.server.load_models))
        for group, facts in chosen
        if (key := model_lists.key(group.model, facts))
    }
    return {**new, **lists}


def _needed(lists: Iterable[str], snapshot: Snapshot, groups: Iterable[Group]) -> set[str]:
    """Returns the keys of the lists that servers of previous pod templates may still read."""
    used = {pod.list_key for pod in snapshot.pods}
    unused = sorted(set(lists) - used)
    complete = not snapshot.ending and all(group.is_complete for group in groups)
    return used.intersection(lists).union([] if complete else unused[:_MAX_UNUSED])


def _may_be_loaded(name: str, snapshot: Snapshot) -> bool:
    """Returns whether a server may have this model. If not, others may load it, and the operator leaves it alone."""
    if snapshot.servers.pending:
        return True
    indexes = [snapshot.servers.indexes.get(pod.name) for pod in snapshot.pods if pod.is_alive]
    states = {entry.state for index in indexes if index is not None for entry in index if entry.name == name}
    return None in indexes or bool(states & {"READY", "LOADING"})


def replace_servers(model: TritonModel, decision: LoadDecision) -> str:
    """Returns why the change of spec.server.loadModels needs new servers; "" if it doesn't."""
    return secrets.redact(decision.rollout, secrets.values(model)) if decision.rollout else ""
