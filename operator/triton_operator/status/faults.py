"""Servers that are Ready and answer nothing, don't use their GPUs, or will end, in the condition Ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from triton_operator.api.monitoring import PrometheusAnswer, ServerFault
from triton_operator.api.servers import MemoryGrowth
from triton_operator.api.status import (
    GPU_NOT_USED,
    MEMORY_GROWS,
    READY,
    SERVER_FAILS,
    SERVER_FAULTS,
    SERVER_HANGS,
    Condition,
)
from triton_operator.pods import Pod

from .conditions import condition

_MAX_DESCRIBED = 3
_BY_URGENCY = (SERVER_FAILS, SERVER_HANGS, GPU_NOT_USED, MEMORY_GROWS)
"""The reasons, the first one first if several are found."""
_AT = " at about "
_ON, _ON_ALL = "on the server", "on all servers"


def with_faults(
    before: Condition,
    answer: PrometheusAnswer | None,
    pods: Sequence[Pod],
    on_cpu: Mapping[str, str],
    growing: Mapping[str, MemoryGrowth],
    replacement: str = "",
) -> Condition:
    """Returns Ready: `before`, or with what is wrong with the ready `pods`. It stays True.

    - `answer`: names the models that answer nothing.
    - `on_cpu`: pod name → a model that runs on the CPU, and would run on a GPU if Triton saw one.
    - `growing`: the servers whose memory grows, by pod.
    - `replacement`: what the operator does about them, as a clause; "" for nothing.
    """
    names = {pod.name for pod in pods}
    faults = [fault for fault in (answer.faults if answer else ()) if fault.pod in names]
    without_gpu = [pod for pod in pods if pod.gpus and pod.name in on_cpu]
    unused = [_unused(without_gpu, on_cpu[without_gpu[0].name])] if without_gpu else []
    times = sorted((growth.full, pod) for pod, growth in growing.items() if pod in names)
    grows = [_grows(times, replacement)] if times else []
    if not (faults or unused or grows):
        return before
    found = [*(SERVER_HANGS if fault.hangs else SERVER_FAILS for fault in faults)]
    found += [GPU_NOT_USED for _ in unused] + [MEMORY_GROWS for _ in grows]
    reason = min(found, key=_BY_URGENCY.index)
    described = [_described(fault, faults, names) for fault in faults[:_MAX_DESCRIBED]]
    more = [f"{len(faults) - _MAX_DESCRIBED} more such models"] if len(faults) > _MAX_DESCRIBED else []
    return condition(
        READY, "True", reason, "; ".join([before.message, *dict.fromkeys(described), *more, *unused, *grows])
    )


def with_last_growth(now: Condition, before: Condition | None, pods: Sequence[Pod]) -> Condition:
    """Returns Ready while a server's memory isn't known yet: what it said `before` of the memory of these ready `pods`.

    Otherwise a restart of the operator would write it twice.
    """
    if before is None or before.reason != MEMORY_GROWS or now.status != "True" or now.reason in SERVER_FAULTS:
        return now
    return before if any(f" {pod.name}{_AT}" in before.message for pod in pods) else now


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


def _grows(growing: Sequence[tuple[datetime, str]], replacement: str) -> str:
    """Returns which servers' memory grows, the first one first, and what to do. `replacement`: as for `with_faults`."""
    listed = ", ".join(f"{pod}{_AT}{time:%Y-%m-%d %H:%M} UTC" for time, pod in growing[:_MAX_DESCRIBED])
    more = f" and {len(growing) - _MAX_DESCRIBED} more later" if len(growing) > _MAX_DESCRIBED else ""
    return (
        f"memory grows steadily and reaches the limit, at which the kernel ends processes: {listed}{more}. The "
        "dashboard Triton / Resources shows which process grows; "
        + (
            replacement
            or "a change of spec.rollout.restartedAt starts new servers before, as spec.memoryGrowth: Replace does"
        )
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
