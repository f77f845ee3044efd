"""Servers that are Ready and answer nothing: what Prometheus' alerts say, in the condition Ready."""

from __future__ import annotations

from collections.abc import Sequence

from triton_operator.api.monitoring import Answer, ServerFault
from triton_operator.api.status import READY, SERVER_FAILS, SERVER_HANGS, Condition
from triton_operator.pods import Pod

from .conditions import condition

_MAX_DESCRIBED = 3


def ready(before: Condition, answer: Answer | None, pods: Sequence[Pod]) -> Condition:
    """Returns Ready: `before`, or with the models that answer nothing on the ready `pods`. It stays True."""
    names = {pod.name for pod in pods}
    faults = [fault for fault in (answer.faults if answer else ()) if fault.pod in names]
    if not faults:
        return before
    reason = SERVER_FAILS if any(not fault.hangs for fault in faults) else SERVER_HANGS
    described = [_described(fault, faults, names) for fault in faults[:_MAX_DESCRIBED]]
    more = [f"{len(faults) - _MAX_DESCRIBED} more such models"] if len(faults) > _MAX_DESCRIBED else []
    return condition(READY, "True", reason, "; ".join([before.message, *dict.fromkeys(described), *more]))


def _described(fault: ServerFault, faults: Sequence[ServerFault], pods: set[str]) -> str:
    symptom = (
        f"the model {fault.model} executes nothing, and its requests wait"
        if fault.hangs
        else f"every request to the model {fault.model} fails"
    )
    same = {other.pod for other in faults if (other.model, other.hangs) == (fault.model, fault.hangs)}
    if same >= pods and len(pods) > 1:
        return f"on all servers {symptom}: the model, its input or the last change is to blame, see their logs"
    advice = "" if len(pods) == 1 else "; other servers answer, so delete its pod, and a new server replaces it"
    return f"on the server {fault.pod} {symptom}{advice or ': see its log, and delete its pod to replace it'}"
