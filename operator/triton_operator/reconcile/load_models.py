"""Brings a change of spec.server.loadModels to the running servers, and then to the ones that start later. Pure.

docs/decisions/0039-load-models-in-a-configmap.md
"""

from __future__ import annotations

from dataclasses import replace

from triton_operator.api import kinds, secrets
from triton_operator.api.types import TritonModel
from triton_operator.model_changes import LoadDecision, change, decide
from triton_operator.render import Choices, load_models, template_hash
from triton_operator.render.choices import Models
from triton_operator.render.template_choice import models_hash
from triton_operator.status.observation import ModelsChange

from .snapshot import Snapshot

_MAX_OTHERS = 512
"""Maximum number of models that were in the spec before. Older ones are forgotten, and stay where they are loaded."""


def decide_change(snapshot: Snapshot, choices: Choices) -> tuple[LoadDecision, Models | None]:
    """Returns the decision about the running servers, and what the ConfigMap says from now on.

    Servers that start load the new models when all others have them, so that a model that doesn't load can't keep a
    server from starting. Servers of another pod template are about to be replaced.
    """
    model = snapshot.model
    if not model.changes_models:
        return LoadDecision(), None
    models, template = tuple(model.spec.server.load_models), template_hash(model, choices)
    record = load_models.read(snapshot.child(kinds.CONFIG_MAP)) or Models(models)
    seconds, entrypoint = float(model.spec.rollout.startup_seconds), model.spec.entrypoint or ""
    indexes = snapshot.servers.indexes
    current = [s for pod in snapshot.pods if pod.is_current(template) and (s := pod.server)]
    changes = {s.uid: change(indexes[s.pod], models, record, entrypoint, seconds) for s in current if s.pod in indexes}
    # A server that hasn't answered yet counts while the spec and the ConfigMap differ.
    servers = [(s, changes.get(s.uid)) for s in current if s.uid in changes or set(record.listed) != set(models)]
    uids = {server.uid for server in current}
    decision = decide(servers, {uid: outcome for uid, outcome in snapshot.changes.items() if uid in uids})
    if decision.rollout and choices.template.replaced == models_hash(model):
        # A server that restarted in its pod. The servers were replaced already.
        decision = replace(decision, rollout="", failure=decision.rollout, refused=True)
    listed = record.listed if decision.left and not decision.rollout else models
    others = [name for name in dict.fromkeys((*models, *record.all)) if name not in listed]
    if not decision.left:
        others = [name for name in others if _may_be_loaded(name, snapshot)]
    return decision, Models(listed, tuple(others[:_MAX_OTHERS]))


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
