"""Reads from a pod which model image its files have, and the last change of it (render/in_place.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from triton_operator.api import names
from triton_operator.render import in_place

Object = Mapping[str, Any]
State = Literal["Running", "Done", "Failed"]
_DONE: tuple[State, str] = ("Done", "")
_NOT_STARTED = {
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
    "RegistryUnavailable", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
    "ContainerCannotRun",
}  # fmt: skip
_WORDS_MAX = 1000
_KILLED = (137, 143)


@dataclass(frozen=True)
class Attempt:
    """A change of a pod's model image.

    - `number`: 1 for the first change of the pod. `reference`: the new model image.
    - `end`: the time when the change must have ended, in seconds since 1970.
    - `state`: Running, Done or Failed. `message`: why it failed.
    - `digest`: the digest of the new model image, "" while it isn't known.
    - `over`: whether the container that changes the files has ended. Otherwise it may still do so.
    """

    number: int
    reference: str
    end: int
    state: State
    message: str = ""
    digest: str = ""
    over: bool = True


def noted(pod: Object) -> str:
    """Returns the model image that the pod says its files have. The operator writes it after a change that is Done."""
    return in_place.reference(pod["metadata"])


def last(pod: Object) -> Attempt | None:
    """Returns the last change of the pod's model image; None if there was none."""
    specs = {str(c.get("name", "")): c for c in pod["spec"].get("ephemeralContainers") or ()}
    number = max((in_place.number_of(name) for name in specs), default=0)
    if not number:
        return None
    change = specs.get(f"{in_place.CHANGE}{number}", {})
    reference = in_place.reference_of(change)
    states = {s["name"]: s for s in pod.get("status", {}).get("ephemeralContainerStatuses") or ()}
    copied, changed = (states.get(f"{prefix}{number}", {}) for prefix in (in_place.FILES, in_place.CHANGE))
    # The operator writes the image into the pod after a change that is Done. A status may be lost, this isn't.
    state, message = _DONE if reference == noted(pod) else _state(reference, copied, changed)
    if state == "Done" and reference != noted(pod) and _copied_again(pod, changed):
        state, message = "Failed", "the pod has copied its former model image again after the change"
    digest = str(copied.get("imageID", "")).rpartition("@")[2]
    return Attempt(
        number, reference, in_place.end_of(change), state, message,
        digest if digest.startswith("sha256:") else "", "terminated" in changed.get("state", {}) or state == "Done",
    )  # fmt: skip


def digest(pod: Object) -> str:
    """Returns the digest of the model image that the last change brought, if the pod has it; "" otherwise."""
    attempt = last(pod)
    return attempt.digest if attempt and attempt.state == "Done" and attempt.reference == noted(pod) else ""


def _state(reference: str, files: Object, change: Object) -> tuple[State, str]:
    ended = change.get("state", {}).get("terminated")
    if ended and ended.get("reason") == "OOMKilled":
        return "Failed", "there wasn't enough memory in the pod to compare and load the model"
    if ended and ended.get("exitCode") in _KILLED:
        return "Failed", "the change was killed, most likely because the server ended while it loaded the model"
    if ended:
        return ("Failed", _words(ended)) if ended.get("exitCode") else _DONE
    copied = files.get("state", {}).get("terminated") or {}
    if copied.get("exitCode"):
        return "Failed", f"could not copy the repository from {reference}: {_words(copied)}"
    for status in (files, change):
        waiting = status.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in _NOT_STARTED:
            words = str(waiting.get("message") or waiting["reason"])[:_WORDS_MAX]
            return "Failed", f"container {status['name']} can't be started: {words}"
    return "Running", ""


def _copied_again(pod: Object, change: Object) -> bool:
    """Returns whether the init container has run after the change, because the node or the pod's sandbox restarted."""
    statuses = pod.get("status", {}).get("initContainerStatuses") or ()
    copied = (s.get("state", {}).get("terminated") or {} for s in statuses if s.get("name") == names.CONTAINER_FETCH)
    started = str(next(copied, {}).get("startedAt", ""))
    finished = str((change.get("state", {}).get("terminated") or {}).get("finishedAt", ""))
    return bool(started and finished) and started > finished


def _words(ended: Object) -> str:
    return str(ended.get("message", "")).strip()[:_WORDS_MAX] or f"exit code {ended.get('exitCode')}"


def tools_image(pod: Object) -> str:
    """Returns the operator's image in this pod."""
    found = (c for c in pod["spec"].get("initContainers") or () if c.get("name") == names.CONTAINER_TOOLS)
    return next((str(c.get("image", "")) for c in found), "")
