"""Brings a change of spec.server.loadModels to the running servers, and then to the ones that start later. Pure.

docs/decisions/0039-load-models-in-a-configmap.md
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from triton_operator.api import kinds, secrets
from triton_operator.api.types import TritonModel
from triton_operator.model_changes import LoadDecision, change, decide
from triton_operator.pods.rollout import is_complete
from triton_operator.render import Facts, model_lists, template_hash
from triton_operator.render.facts import Models
from triton_operator.render.template_choice import models_hash
from triton_operator.status.observation import ModelsChange

from .snapshot import Snapshot

_MAX_OTHERS = 512
"""Maximum number of models that were in the spec before. Older ones are forgotten, and stay where they are loaded."""
_MAX_UNUSED = 3
"""Maximum number of lists that no pod has during a rollout: the Deployment may start a server of its template."""


def decide_change(snapshot: Snapshot, facts: Facts) -> tuple[LoadDecision, dict[str, Models]]:
    """Returns the decision about the running servers, and what the ConfigMap says from now on.

    Servers that start load the new models when all others have them, so that a model that doesn't load can't keep a
    server from starting. Servers of another pod template keep their list, and are about to be replaced.
    """
    model = snapshot.model
    lists = model_lists.read(snapshot.child(kinds.CONFIG_MAP))
    key, template = model_lists.key(model, facts), template_hash(model, facts)
    kept = {at: lists[at] for at in _needed(lists, snapshot, template) if at != key}
    if not key:
        return LoadDecision(), kept
    models = tuple(model.spec.server.load_models)
    record = lists.get(key) or Models(models)
    seconds, entrypoint = float(model.spec.rollout.startup_seconds), model.spec.entrypoint or ""
    indexes = snapshot.servers.indexes
    current = [s for pod in snapshot.pods if pod.is_current(template) and (s := pod.server)]
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
        return decision, {**kept, key: record}
    listed = record.listed if decision.left else models
    others = [name for name in dict.fromkeys((*models, *record.all)) if name not in listed]
    if not decision.left:
        others = [name for name in others if _may_be_loaded(name, snapshot)]
    return decision, {**kept, key: Models(listed, tuple(others[:_MAX_OTHERS]))}


def _needed(lists: Iterable[str], snapshot: Snapshot, template: str) -> set[str]:
    """Returns the keys of the lists that servers of previous pod templates may still read."""
    used = {pod.list_key for pod in snapshot.pods}
    unused = sorted(set(lists) - used)
    deployment = snapshot.deployment
    complete = deployment is not None and is_complete(deployment, snapshot.pods, template)
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


def reported(model: TritonModel, decision: LoadDecision) -> ModelsChange | None:
    """Returns the change for the status; None if there is none."""
    if not decision.left:
        return None
    failure = secrets.redact(decision.failure, secrets.values(model)) if decision.failure else ""
    return ModelsChange(decision.left, failure, decision.refused)
