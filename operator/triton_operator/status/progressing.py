"""The condition Progressing: whether every server runs the current spec."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from triton_operator.api import names, secrets
from triton_operator.api.status import PROGRESSING, Condition
from triton_operator.decisions.decide import Decision
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.model_changes import LoadDecision
from triton_operator.pods import Pod, Problem
from triton_operator.pods.problems import step_of
from triton_operator.pods.replacements import in_progress

from .canary import ended
from .conditions import condition
from .kstatus import COMPLETE
from .pods_problem import of_group


def progressing(
    snapshot: Snapshot,
    decision: Decision,
    rollout: str,
    current: Sequence[Pod],
    ready: Sequence[Pod],
    problem: Problem | None,
) -> Condition:
    """Progressing: whether every server runs the current spec, and else what is going on or in the way.

    - `rollout`: why a change of spec.server.loadModels replaces the servers; "" if it doesn't.
    - `ready`: the pods that are ready. `current`: those with the current pod template.
    - `problem`: what keeps servers of the current spec from answering, or a refused write; None if there is none.
    """
    if problem:
        old = [p for p in ready if p not in current]
        suffix = "; the servers of the previous spec keep serving" if old else ""
        return condition(PROGRESSING, "False", problem.reason, problem.message + suffix)
    if any(group.deployment is None for group in snapshot.groups):
        return condition(PROGRESSING, "True", "Creating", "the Deployment is being created")
    if decision.load.left:
        return _changing(decision.load, secrets.values(snapshot.model))
    if all(group.is_complete for group in snapshot.groups) and not any(pod.is_alive for pod in snapshot.ending):
        tried = decision.memory.canary.progress if decision.memory.canary else None
        if tried is not None and (over := ended(tried)) is not None:
            return condition(PROGRESSING, "False", over.reason, over.message)
        differing = "".join(_differing(group.current) for group in snapshot.groups)
        return condition(
            PROGRESSING, "False", COMPLETE, "every server runs the current spec" + differing + _newer(decision)
        )
    if paused := next((group for group in snapshot.groups if group.is_paused and not group.is_complete), None):
        name = names.deployment(paused.model.name, paused.name)
        return condition(
            PROGRESSING, "False", "DeploymentPaused",
            "the Deployment is paused, so Kubernetes replaces no server: "
            f"run kubectl rollout resume deployment/{name}",
        )  # fmt: skip
    waiting = next((of_group(g, step_of(p)) for g in snapshot.groups for p in g.current if not p.is_ready), None)
    if waiting is None:
        waiting = Problem("", "waiting for new servers to start, or for servers of the previous spec to stop")
    why = f"; the servers are replaced for the change of spec.server.loadModels: {rollout}"
    if not rollout:
        why = "; the servers are replaced before their memory reaches the limit" if in_progress(snapshot.main) else ""
    return condition(PROGRESSING, "True", "RollingOut", waiting.message + why)


def _changing(change: LoadDecision, hidden: Collection[str]) -> Condition:
    """Progressing while the models of running servers change. `hidden`: sensitive values."""
    failure = secrets.redact(change.failure, hidden) if change.failure else ""
    if change.refused:
        return condition(
            PROGRESSING, "False", "ModelLoadFailed",
            f"the models of spec.server.loadModels can't be loaded: {failure}; the servers keep serving the "
            "models that they have. Correct spec.server.loadModels, or replace the servers by a change of "
            "spec.rollout.restartedAt",
        )  # fmt: skip
    many = f"{change.left} server{'s' if change.left > 1 else ''}"
    message = f"{many} still to change to the models of spec.server.loadModels, without a restart"
    return condition(PROGRESSING, "True", "ChangingModels", message + (f"; {failure}" if failure else ""))


def _differing(pods: Sequence[Pod]) -> str:
    """Returns which image differs between the servers, because its tag was moved; "" if none does."""
    images = {
        "model image": {p.model_digest for p in pods} - {""},
        "server image": {p.server_digest for p in pods} - {""},
    }
    return "".join(
        f"; but they have {len(digests)} versions of the {image}, as after a move of its tag: "
        f"{', '.join(sorted(digests))}. To have one, name it by its digest"
        for image, digests in images.items()
        if len(digests) > 1
    )


def _newer(decision: Decision) -> str:
    if not decision.has_newer_template:
        return ""
    return (
        "; this version of the operator has a newer pod template, which the next change of the spec rolls out. To roll "
        "it out now, change spec.rollout.restartedAt"
    )
