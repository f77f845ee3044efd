"""What keeps a pod from serving, and its steps until then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from triton_operator.api import names
from triton_operator.api.status import RepairStatus
from triton_operator.api.types import is_reserved
from triton_operator.render import start
from triton_operator.render.exporters import EXPORTERS

from .pod import Pod, ended, run_seconds


@dataclass(frozen=True)
class Problem:
    """Why something doesn't work: one word for the cause, and the message of the component that failed."""

    reason: str
    message: str


_IMAGES = {
    names.CONTAINER_FETCH: "model image",
    names.CONTAINER_SERVER: "server image",
    names.CONTAINER_TOOLS: "operator image",
    names.CONTAINER_CHECK: "operator image",
    names.CONTAINER_ANSWERS: "operator image",
    **{exporter.container: "operator image" for exporter in EXPORTERS},
}
_PULL_REASONS = {
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable",
    "ImageInspectError", "SignatureValidationFailed",
}  # fmt: skip
_START_REASONS = {
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError",
    "PreStartHookError", "PostStartHookError", "ContainerCannotRun",
}  # fmt: skip

_LESS_MEMORY = "raise spec.server.resources.limits.memory, or load fewer models (shared memory counts too)"
_MORE_DISK = (
    "Raise spec.server.resources.limits.ephemeral-storage: the copy of the model repository, the logs and what models "
    "write count, or set spec.modelImage.delivery to ImageVolume, which copies nothing"
)
_MORE_MEMORY = "raise its limit in spec.podTemplate, or in the settings of the webhook that has added the container"

_AFTER_OUT_OF_MEMORY = {
    **dict.fromkeys(
        (names.CONTAINER_SERVER, names.CONTAINER_TOOLS, names.CONTAINER_FETCH, names.CONTAINER_CHECK), _LESS_MEMORY
    ),
    names.CONTAINER_ANSWERS: "compare no answers (spec.canary.comparePercent: 0)",
    **{exporter.container: exporter.without for exporter in EXPORTERS},
}

_EXITS = {
    127: ": spec.server.image has no program tritonserver in its PATH, or lacks a library of it",
    135: " (signal 7): /dev/shm is full, or a file that a model has mapped was cut: raise spec.server.sharedMemory",
    139: " (signal 11): a model or its backend has a fault in a library, or a client has sent a large body with the "
    "Content-Type application/x-www-form-urlencoded, which curl sends by default: let clients send "
    "application/octet-stream",
}
"""What the exit code of tritonserver says, and what to do."""

_NEEDS_BUILD = {
    "--metrics-config": " (unknown to an image that was built without metrics, TRITON_ENABLE_METRICS)",
    "--trace-config": " (of spec.monitoring.latency; unknown to an image that was built without traces, "
    "TRITON_ENABLE_TRACING)",
}
"""Flags that the operator sets, and that need an option of Triton's build."""

_MANY_MODELS = 20
"""From this number on, the threads of Python models may be more than a common limit of processes, 1024."""
BACKEND_DIED = "BackendDied"
WITH_LOG = {"ServerCrashed", "StartupTimeout", "ContainerCrashed", "ContainerNotStarted"}
"""Problems whose message contains the log of a container, or the container runtime's message. Both may contain secrets.
"""
_STEPS = {
    names.CONTAINER_TOOLS: ("PreparingRepository", "pulling images and preparing the delivery of the repository"),
    names.CONTAINER_FETCH: ("FetchingRepository", "fetching the model repository from its image"),
    names.CONTAINER_CHECK: ("CheckingRepository", "checking the model repository"),
}
"""The steps of our init containers, in their order."""


def step_of(pod: Pod) -> Problem:
    """Returns the current step of a pod that isn't ready. A step is progress and no problem."""
    scheduled = pod.condition("PodScheduled")
    if scheduled.get("status") != "True":
        words = scheduled.get("message", "")
        return Problem("Scheduling", "waiting for a node" + (f": {words}" if words else ""))
    if pod.condition("PodReadyToStartContainers").get("status") == "False":
        return Problem(
            "PreparingRepository",
            "waiting for the volumes and the network of the pod; if it takes long, its Events say why",
        )
    # The user's podTemplate or a webhook, such as that of a service mesh, may have added init containers.
    now = next((s["name"] for s in pod.init_containers if not pod.is_over(s)), "")
    wait = f"waiting for the init container {now}" if now and now not in _STEPS else ""
    for container, (reason, text) in _STEPS.items():
        if not pod.is_over(pod.container(container)):
            return Problem(reason, wait or text)
    if not pod.server_started:
        return Problem("LoadingModels", wait or "the server is starting and loading its models")
    if not pod.container(names.CONTAINER_SERVER).get("ready"):
        missing = (
            f"the health request isn't answered yet: kubectl describe pod {pod.name} shows the answer"
            if pod.has_health_request
            else "the entrypoint doesn't answer yet"
        )
        return Problem(
            "EntrypointNotReady", f"the server has started, but {missing}; the condition ModelsLoaded lists models"
        )
    ready = pod.condition("Ready")
    words = ready.get("message") or ready.get("reason") or "perhaps its node doesn't answer"
    return Problem("PodNotReady", f"the server is ready, but its pod isn't: {words}")


def problem_of(pod: Pod) -> Problem | None:
    """Returns the first problem that keeps this pod from serving, or that made it fail; None if there is none."""
    if pod.is_ready or pod.is_deleting:
        return None
    return next((problem for check in _CHECKS if (problem := check(pod))), None)


def _evicted(pod: Pod) -> Problem | None:
    status = pod.status
    if status.get("phase") == "Failed" and status.get("reason"):
        message = status.get("message", "the pod failed")
        disk = "ephemeral" in message and "limit" in message
        return Problem(status["reason"], f"{message.strip()} {_MORE_DISK}" if disk else message)
    return None


def _unschedulable(pod: Pod) -> Problem | None:
    scheduled = pod.condition("PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return Problem("Unschedulable", scheduled.get("message", "no node fits"))
    return None


def _not_pulled(pod: Pod) -> Problem | None:
    for status in pod.containers:
        waiting = status.get("state", {}).get("waiting", {})
        if waiting.get("reason") in _PULL_REASONS:
            what = _IMAGES.get(status["name"], f"image of container {status['name']}")
            # Between two attempts the kubelet puts "Back-off pulling image …" before the original message.
            words = (waiting.get("message") or waiting["reason"]).rpartition(": ErrImagePull: ")[2]
            return Problem("ImagePullFailed", f"{what} {status['image']} can't be pulled: {words}")
    return None


def _not_started(pod: Pod) -> Problem | None:
    for status in pod.containers:
        waiting = status.get("state", {}).get("waiting", {})
        if waiting.get("reason") in _START_REASONS:
            words = waiting.get("message") or waiting["reason"]
            return Problem("ContainerNotStarted", f"container {status['name']} can't be started: {words}")
    return None


def _not_copied(pod: Pod) -> Problem | None:
    status = pod.container(names.CONTAINER_FETCH)
    end = ended(status)
    if not end.get("exitCode"):
        return None
    words = end.get("message", "").strip() or f"exit code {end['exitCode']}"
    return Problem(
        "RepositoryNotCopied",
        f"could not copy the repository from {status['image']}: {words} (spec.modelImage.path names the "
        "directory in the image)",
    )


def _invalid(pod: Pod) -> Problem | None:
    end = ended(pod.container(names.CONTAINER_CHECK))
    if not end.get("exitCode"):
        return None
    checked = pod.check_report
    if checked is None:
        return Problem("RepositoryCheckFailed", end.get("message", "").strip() or f"exit code {end['exitCode']}")
    errors = [str(f) for f in checked.findings if f.severity == "error"]
    more = [f"and {checked.truncated} more findings"] if checked.truncated else []
    return Problem("RepositoryInvalid", "; ".join(errors + more))


def _out_of_memory(pod: Pod) -> Problem | None:
    for status in pod.containers:
        if ended(status).get("reason") == "OOMKilled" and not status.get("ready"):
            limit = pod.limit(status["name"], "memory")
            at = f" at its limit of {limit}" if limit else ""
            remedy = _AFTER_OUT_OF_MEMORY.get(status["name"], _MORE_MEMORY)
            return Problem("OutOfMemory", f"container {status['name']} ran out of memory and was killed{at}: {remedy}")
    return None


def _startup_budget(pod: Pod) -> Problem | None:
    status = pod.container(names.CONTAINER_SERVER)
    end = ended(status)
    budget = pod.startup_seconds
    if status.get("started") or not budget or run_seconds(end) < budget:
        return None
    return Problem(
        "StartupTimeout",
        f"the server didn't load its models within {budget} s and was restarted: raise "
        "spec.rollout.startupSeconds if they need more time" + _tail(end),
    )


def repair_of(pod: Pod) -> RepairStatus | None:
    """Returns the last restart of the server because a backend process had died; None without one."""
    end = ended(pod.container(names.CONTAINER_SERVER))
    message = end.get("message", "")
    if not message.startswith(start.DIED) or not end.get("finishedAt"):
        return None
    number = pod.restarts
    more = f"; it has restarted {number} times in this pod" if number > 1 else ""
    died, _, space = message.removeprefix(start.DIED).strip().partition("\n")
    what = f"the process of {' and of '.join(died.split(', '))} died"
    full = f" while {space}" if space else ""
    return RepairStatus(
        reason=BACKEND_DIED,
        server=pod.name,
        message=f"{what}{full}, so each request to its model failed, and the server restarted{more}. Its log before "
        "the restart may say why: kubectl logs --previous",
        time=end["finishedAt"],
    )


def _backend_died(pod: Pod) -> Problem | None:
    repair = repair_of(pod)
    return Problem(repair.reason, repair.message) if repair else None


def _crashed(pod: Pod) -> Problem | None:
    end = ended(pod.container(names.CONTAINER_SERVER))
    if not end:
        return None
    code = end["exitCode"]
    why = (_EXITS.get(code, "") or _usage(pod, end.get("message", ""))) + _threads(pod, code)
    more = "" if code not in _EXITS and why else _tail(end)
    return Problem("ServerCrashed", f"tritonserver ended with exit code {code}{why}{more}")


def _threads(pod: Pod, code: int) -> str:
    """Returns that the limit of processes may be the cause; "" if the server has few models or another exit code."""
    report = pod.check_report
    number = report.model_count if report else 0
    if code != 139 or number < _MANY_MODELS:
        return ""
    return (
        f"; or its {number} models have more threads than the node's limit of processes (podPidsLimit of the kubelet) "
        "allows, since a Python model has about 40: add --backend-config=python,thread-pool-size=1 to spec.server.args"
    )


def _usage(pod: Pod, message: str) -> str:
    """Returns why tritonserver refused its arguments; "" if its log doesn't end with its long usage text.

    It prints some reasons after that text. The name of an unknown option is before it, and so not in the message.
    """
    lines = message.splitlines()
    usage = [index for index, line in enumerate(lines) if line.startswith(("  --", "\t"))]
    if not any(lines[index].startswith("  --") for index in usage):
        return ""
    refusal = " ".join(" ".join(lines[usage[-1] + 1 :]).split())
    flags = [flag.partition("=")[0] for flag in pod.arguments if flag.startswith("--") and not is_reserved(flag)]
    named = ", ".join(f"{flag}{_NEEDS_BUILD.get(flag, '')}" for flag in dict.fromkeys(flags))
    unknown = f"it doesn't know one of {named}; the first line of its log says which"
    return f": it refuses its arguments: {refusal or unknown}; correct spec.server.args"


def _container_crashed(pod: Pod) -> Problem | None:
    for status in pod.containers:
        end = ended(status)
        if end.get("exitCode") and not status.get("ready"):
            words = end.get("message", "").strip()
            note = f"; its termination message: {words}" if words else ""
            return Problem(
                "ContainerCrashed", f"container {status['name']} ended with exit code {end['exitCode']}{note}"
            )
    return None


def _stopped_answering(pod: Pod) -> Problem | None:
    since = pod.stopped_answering
    if since is None:
        return None
    failure = "not answered the health request" if pod.has_health_request else "not passed its readiness probe"
    return Problem(
        "StoppedAnswering",
        f"the server {pod.name} was ready, and has {failure} since {since:%H:%M:%S} UTC: "
        f"kubectl describe pod {pod.name} says why",
    )


_CHECKS: tuple[Callable[[Pod], Problem | None], ...] = (
    _evicted,
    _unschedulable,
    _not_pulled,
    _not_started,
    _stopped_answering,
    _out_of_memory,
    _not_copied,
    _invalid,
    _startup_budget,
    _backend_died,
    _crashed,
    _container_crashed,
)


def _tail(end: Mapping[str, Any]) -> str:
    message = end.get("message", "").strip()
    return f"; the last lines of its log: {message}" if message else ""
