"""The progress of one pod, and its problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from triton_operator.api import names
from triton_operator.api.kinds import is_deleting
from triton_operator.api.servers import Server
from triton_operator.render import load_models
from triton_operator.repository import report

from . import image_change
from .observation import Object, Problem

_IMAGES = {
    names.CONTAINER_FETCH: "model image",
    names.CONTAINER_SERVER: "server image",
    names.CONTAINER_TOOLS: "operator image",
    names.CONTAINER_CHECK: "operator image",
}
_PULL_REASONS = {
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable",
    "ImageInspectError", "SignatureValidationFailed",
}  # fmt: skip
_START_REASONS = {
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError",
    "PreStartHookError", "PostStartHookError", "ContainerCannotRun",
}  # fmt: skip

_LESS_MEMORY = "spec.server.resources.limits.memory, or load fewer models (shared memory counts too)"
_MORE_MEMORY = "its limit in spec.podTemplate, or in the settings of the webhook that has added the container"

WITH_LOG = {"ServerCrashed", "StartupTimeout", "ContainerCrashed", "ContainerNotStarted"}
"""Problems whose message contains the log of a container, or the container runtime's message. Both may contain secrets.
"""
_STEPS = {
    names.CONTAINER_TOOLS: ("PreparingRepository", "pulling images and preparing the delivery of the repository"),
    names.CONTAINER_FETCH: ("FetchingRepository", "fetching the model repository from its image"),
    names.CONTAINER_CHECK: ("CheckingRepository", "checking the model repository"),
}
"""The steps of our init containers, in their order."""


def alive(pod: Object) -> bool:
    """Returns whether the pod is neither being deleted nor finished."""
    return not is_deleting(pod) and not finished(pod)


def finished(pod: Object) -> bool:
    """Returns whether the pod has ended. Its ReplicaSet creates another one; this one stays until it is collected."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_current(pod: Object, template: str) -> bool:
    """Returns whether the pod was created from this pod template."""
    return bool(pod["metadata"].get("annotations", {}).get(names.ANNOTATION_TEMPLATE) == template)


def is_ready(pod: Object) -> bool:
    """Returns whether the pod is Ready. The readiness probe checks the entrypoint."""
    return alive(pod) and _condition(pod, "Ready").get("status") == "True"


def server_started(pod: Object) -> bool:
    """Returns whether Triton's endpoints are up (the startup probe has passed)."""
    return alive(pod) and bool(_container(pod, names.CONTAINER_SERVER).get("started"))


def server(pod: Object) -> Server | None:
    """Returns the pod's server; None until Triton's endpoints are up."""
    address = pod.get("status", {}).get("podIP", "")
    if not server_started(pod) or not address:
        return None
    host = f"[{address}]" if ":" in address else address
    metadata = pod["metadata"]
    epoch = (restarts(pod), is_ready(pod))
    return Server(metadata["uid"], metadata["name"], host, epoch)


def models(pod: Object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the models of loadModels that the server in this pod has, and the ones that it perhaps has.

    It has the models of its arguments, unless the operator has changed them since the server started.
    """
    count, found, listed = pod["metadata"].get("annotations", {}).get(names.ANNOTATION_MODELS, "").partition(":")
    if found and count == str(restarts(pod)):
        sure, _, perhaps = listed.partition("/")
        return _names(sure), _names(perhaps)
    return load_models.listed(pod["spec"]), ()


def models_note(pod: Object, sure: Iterable[str], perhaps: Iterable[str] = ()) -> str:
    """Returns the value of the annotation for a server that has the models `sure`, and perhaps others."""
    note = f"{restarts(pod)}:{','.join(sure)}"
    return f"{note}/{','.join(perhaps)}" if perhaps else note


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def restarts(pod: Object) -> int:
    """Returns the number of restarts of the server in this pod."""
    return int(_container(pod, names.CONTAINER_SERVER).get("restartCount", 0))


def digest(pod: Object) -> str:
    """Returns the digest of the model image of this pod; "" if it isn't known yet."""
    return image_change.digest(pod) or _image_digest(pod, names.CONTAINER_FETCH)


def server_digests(pods: Iterable[Object]) -> set[str]:
    """Returns the digests of the server images of these pods, as far as they are known."""
    return {_image_digest(pod, names.CONTAINER_SERVER) for pod in pods} - {""}


def _image_digest(pod: Object, container: str) -> str:
    image_id = str(_container(pod, container).get("imageID", ""))
    return image_id.rpartition("@")[2] if "sha256:" in image_id else ""


def check_report(pod: Object) -> report.Report | None:
    """Returns the report of the repository check in this pod; None if it hasn't finished."""
    ended = _ended(_container(pod, names.CONTAINER_CHECK))
    return report.parse(ended.get("message", ""))


def phase(pod: Object) -> Problem:
    """Returns the current step of a pod that isn't ready. A step is progress and no problem."""
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") != "True":
        words = scheduled.get("message", "")
        return Problem("Scheduling", "waiting for a node" + (f": {words}" if words else ""))
    if _condition(pod, "PodReadyToStartContainers").get("status") == "False":
        return Problem(
            "PreparingRepository",
            "waiting for the volumes and the network of the pod; if it takes long, its Events say why",
        )
    # The user's podTemplate or a webhook, such as that of a service mesh, may have added init containers.
    now = next((s["name"] for s in _init_containers(pod) if not _is_over(pod, s)), "")
    wait = f"waiting for the init container {now}" if now and now not in _STEPS else ""
    for container, (reason, text) in _STEPS.items():
        if not _is_over(pod, _container(pod, container)):
            return Problem(reason, wait or text)
    if not server_started(pod):
        return Problem("LoadingModels", wait or "the server is starting and loading its models")
    if not _container(pod, names.CONTAINER_SERVER).get("ready"):
        return Problem(
            "EntrypointNotReady",
            "the server has started, but the entrypoint doesn't answer yet; the condition ModelsLoaded lists models",
        )
    said = _condition(pod, "Ready")
    words = said.get("message") or said.get("reason") or "perhaps its node doesn't answer"
    return Problem("PodNotReady", f"the server is ready, but its pod isn't: {words}")


def problem(pod: Object) -> Problem | None:
    """Returns the first problem that keeps this pod from serving, or that made it fail; None if there is none."""
    if is_ready(pod) or is_deleting(pod):
        return None
    return next((found for check in _CHECKS if (found := check(pod))), None)


def _evicted(pod: Object) -> Problem | None:
    status = pod.get("status", {})
    if status.get("phase") == "Failed" and status.get("reason"):
        return Problem(status["reason"], status.get("message", "the pod failed"))
    return None


def _unschedulable(pod: Object) -> Problem | None:
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        return Problem("Unschedulable", scheduled.get("message", "no node fits"))
    return None


def _not_pulled(pod: Object) -> Problem | None:
    for status in _containers(pod):
        waiting = status.get("state", {}).get("waiting", {})
        if waiting.get("reason") in _PULL_REASONS:
            what = _IMAGES.get(status["name"], f"image of container {status['name']}")
            # Between two attempts the kubelet puts "Back-off pulling image …" before the original message.
            words = (waiting.get("message") or waiting["reason"]).rpartition(": ErrImagePull: ")[2]
            return Problem("ImagePullFailed", f"{what} {status['image']} can't be pulled: {words}")
    return None


def _not_started(pod: Object) -> Problem | None:
    for status in _containers(pod):
        waiting = status.get("state", {}).get("waiting", {})
        if waiting.get("reason") in _START_REASONS:
            words = waiting.get("message") or waiting["reason"]
            return Problem("ContainerNotStarted", f"container {status['name']} can't be started: {words}")
    return None


def _not_copied(pod: Object) -> Problem | None:
    status = _container(pod, names.CONTAINER_FETCH)
    ended = _ended(status)
    if not ended.get("exitCode"):
        return None
    words = ended.get("message", "").strip() or f"exit code {ended['exitCode']}"
    return Problem(
        "RepositoryNotCopied",
        f"could not copy the repository from {status['image']}: {words} (spec.modelImage.path names the "
        "directory in the image)",
    )


def _invalid(pod: Object) -> Problem | None:
    ended = _ended(_container(pod, names.CONTAINER_CHECK))
    if not ended.get("exitCode"):
        return None
    found = report.parse(ended.get("message", ""))
    if found is None:
        return Problem("RepositoryCheckFailed", ended.get("message", "").strip() or f"exit code {ended['exitCode']}")
    errors = [str(f) for f in found.findings if f.severity == "error"]
    more = [f"and {found.truncated} more findings"] if found.truncated else []
    return Problem("RepositoryInvalid", "; ".join(errors + more))


def _out_of_memory(pod: Object) -> Problem | None:
    for status in _containers(pod):
        if _ended(status).get("reason") == "OOMKilled" and not status.get("ready"):
            limit = _limit(pod, status["name"], "memory")
            at = f" at its limit of {limit}" if limit else ""
            remedy = _LESS_MEMORY if status["name"] in _IMAGES else _MORE_MEMORY
            return Problem(
                "OutOfMemory", f"container {status['name']} ran out of memory and was killed{at}: raise {remedy}"
            )
    return None


def _startup_budget(pod: Object) -> Problem | None:
    status = _container(pod, names.CONTAINER_SERVER)
    ended = _ended(status)
    budget = _startup_seconds(pod)
    if status.get("started") or not budget or _seconds(ended) < budget:
        return None
    return Problem(
        "StartupTimeout",
        f"the server didn't load its models within {budget} s and was restarted: raise "
        "spec.rollout.startupSeconds if they need more time" + _tail(ended),
    )


def _crashed(pod: Object) -> Problem | None:
    ended = _ended(_container(pod, names.CONTAINER_SERVER))
    if not ended:
        return None
    return Problem("ServerCrashed", f"tritonserver ended with exit code {ended['exitCode']}" + _tail(ended))


def _container_crashed(pod: Object) -> Problem | None:
    for status in _containers(pod):
        ended = _ended(status)
        if ended.get("exitCode") and not status.get("ready"):
            words = ended.get("message", "").strip()
            said = f"; its termination message: {words}" if words else ""
            return Problem(
                "ContainerCrashed", f"container {status['name']} ended with exit code {ended['exitCode']}{said}"
            )
    return None


_CHECKS: tuple[Callable[[Object], Problem | None], ...] = (
    _evicted,
    _unschedulable,
    _not_pulled,
    _not_started,
    _out_of_memory,
    _not_copied,
    _invalid,
    _startup_budget,
    _crashed,
    _container_crashed,
)


def _condition(pod: Object, kind: str) -> dict[str, Any]:
    conditions = pod.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), {})


def _containers(pod: Object) -> Iterator[dict[str, Any]]:
    yield from _init_containers(pod)
    yield from pod.get("status", {}).get("containerStatuses", [])


def _init_containers(pod: Object) -> list[dict[str, Any]]:
    """Returns the status of the init containers, in the order in which they start."""
    found: list[dict[str, Any]] = pod.get("status", {}).get("initContainerStatuses", [])
    return found


def _is_over(pod: Object, init: dict[str, Any]) -> bool:
    """Returns whether the next init container may start: this one has succeeded, or is a sidecar that has started."""
    if init and _spec(pod, init["name"]).get("restartPolicy") == "Always":
        return bool(init.get("started"))
    return bool(init.get("state", {}).get("terminated", {}).get("exitCode") == 0)


def _container(pod: Object, name: str) -> dict[str, Any]:
    return next((s for s in _containers(pod) if s["name"] == name), {})


def _ended(status: dict[str, Any]) -> dict[str, Any]:
    """Returns how the container ended last: its current state, or the previous one if it was restarted."""
    last = status.get("lastState", {}).get("terminated")
    ended: dict[str, Any] = status.get("state", {}).get("terminated") or last or {}
    return ended


def _seconds(ended: dict[str, Any]) -> float:
    """Returns the run time of a container that has ended, in seconds."""
    if not ended.get("startedAt") or not ended.get("finishedAt"):
        return 0.0
    start, end = (datetime.fromisoformat(ended[k]) for k in ("startedAt", "finishedAt"))
    return (end - start).total_seconds()


def _spec(pod: Object, name: str) -> dict[str, Any]:
    containers = pod["spec"].get("initContainers", []) + pod["spec"]["containers"]
    return next((c for c in containers if c["name"] == name), {})


def _limit(pod: Object, container: str, resource: str) -> str:
    return str(_spec(pod, container).get("resources", {}).get("limits", {}).get(resource, ""))


def _startup_seconds(pod: Object) -> int:
    probe = _spec(pod, names.CONTAINER_SERVER).get("startupProbe", {})
    return int(probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)) if probe else 0


def _tail(ended: dict[str, Any]) -> str:
    message = ended.get("message", "").strip()
    return f"; the last lines of its log: {message}" if message else ""
