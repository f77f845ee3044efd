"""The condition Ready: whether a server answers."""

from __future__ import annotations

from collections.abc import Sequence

from triton_operator.api.status import READY, Condition
from triton_operator.pods import Pod, Problem
from triton_operator.pods.group import Servers
from triton_operator.pods.problems import step_of

from .conditions import condition

_TO_ZERO = "the Deployment is scaled to 0: servers start when spec.replicas or the autoscaler raises the number"
_STARTING = Problem("Creating", "waiting for the Deployment's first pod")


def ready_condition(
    groups: Sequence[Servers],
    entrypoint: str,
    ready: Sequence[Pod],
    problem: Problem | None,
) -> Condition:
    """Ready: whether a server answers, of any of these groups and any pod template.

    - `ready`: the pods that are ready.
    - `problem`: what keeps servers from answering; None if nothing does.
    """
    if ready:
        return condition(READY, "True", "EntrypointAnswers", f"{entrypoint or 'every model'} answers")
    if all(group.deployment is not None and group.desired == 0 for group in groups):
        return condition(READY, "False", "ScaledToZero", _TO_ZERO)
    current = next((pod for group in groups for pod in group.current), None)
    cause = problem or (step_of(current) if current else _STARTING)
    return condition(READY, "False", cause.reason, cause.message)
