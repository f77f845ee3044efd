"""Servers that are Ready and answer nothing, or don't use their GPUs, in the condition Ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from triton_operator.api.monitoring import PrometheusAnswer, ServerFault
from triton_operator.api.status import GPU_NOT_USED, READY, SERVER_FAILS, SERVER_HANGS, Condition
from triton_operator.pods import Pod

from .conditions import condition

_MAX_DESCRIBED = 3
_ON, _ON_ALL = "on the server", "on all servers"


def with_faults(
    before: Condition, answer: PrometheusAnswer | None, pods: Sequence[Pod], on_cpu: Mapping[str, str]
) -> Condition:
    """Returns Ready: `before`, or with what is wrong with the ready `pods`. It stays True.

    - `answer`: names the models that answer nothing.
    - `on_cpu`: pod name → a model that runs on the CPU, and would run on a GPU if Triton saw one.
    """
    names = {pod.name for pod in pods}
    faults = [fault for fault in (answer.faults if answer else ()) if fault.pod in names]
    without_gpu = [pod for pod in pods if pod.gpus and pod.name in on_cpu]
    unused = [_unused(without_gpu, on_cpu[without_gpu[0].name])] if without_gpu else []
    if not faults and not unused:
        return before
    reason = SERVER_FAILS if any(not fault.hangs for fault in faults) else SERVER_HANGS if faults else GPU_NOT_USED
    described = [_described(fault, faults, names) for fault in faults[:_MAX_DESCRIBED]]
    more = [f"{len(faults) - _MAX_DESCRIBED} more such models"] if len(faults) > _MAX_DESCRIBED else []
    return condition(READY, "True", reason, "; ".join([before.message, *dict.fromkeys(described), *more, *unused]))


def are_about(words: str, pods: Iterable[Pod]) -> bool:
    """Returns whether the words about faults in a message of Ready are about one of these ready pods."""
    return _ON_ALL in words or any(f"{_ON} {pod.name} " in words for pod in pods)


def _unused(pods: Sequence[Pod], model: str) -> str:
    """Returns which servers don't use their GPUs, and what to do. `model`: runs on the CPU of the first one."""
    first, listed = pods[0], ", ".join(pod.name for pod in pods[:_MAX_DESCRIBED])
    more = f" and {len(pods) - _MAX_DESCRIBED} more" if len(pods) > _MAX_DESCRIBED else ""
    who = f"server {listed} has" if len(pods) == 1 else f"servers {listed}{more} have"
    return (
        f"the {who} {first.gpus} by the limits, but Triton sees no GPU that it can use, and runs {model} on the CPU, "
        "much slower. Usual causes: the node's driver is older than the server image needs, the pod lacks the "
        "runtimeClassName of NVIDIA's runtime, the device is gone or too old for Triton, the image is one for CPUs. "
        f"To see which: kubectl logs {first.name} -c triton | grep -i cuda, and kubectl exec {first.name} -c triton -- "
        "nvidia-smi"
    )


def _described(fault: ServerFault, faults: Sequence[ServerFault], pods: set[str]) -> str:
    model = fault.model + (f" version {fault.version}" if fault.version else "")
    symptom = (
        f"the model {model} executes nothing, and its requests wait"
        if fault.hangs
        else f"every request to the model {model} fails"
    )
    same = {other.pod for other in faults if replace(other, pod=fault.pod) == fault}
    if same >= pods and len(pods) > 1:
        return f"{_ON_ALL} {symptom}: the model, its input or the last change is to blame, see their logs"
    advice = "" if len(pods) == 1 else "; other servers answer, so delete its pod, and a new server replaces it"
    return f"{_ON} {fault.pod} {symptom}{advice or ': see its log, and delete its pod to replace it'}"
