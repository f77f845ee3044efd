"""The progress of a start or a rollout, from a TritonModel, its pods and their Events. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_operator.api import names
from triton_operator.api.status import PROGRESSING, READY, Condition, TritonModelStatus
from triton_operator.api.text import one_line
from triton_operator.status import pods as judge

Object = dict[str, Any]
STEPS = (
    "Scheduling",
    "PreparingRepository",
    "FetchingRepository",
    "CheckingRepository",
    "LoadingModels",
    "EntrypointNotReady",
)
"""The steps of a server on the way to Ready, in their order (status/pods.py).
A pod with all of them may still not be ready."""
_PULL_ENDS = {"Pulled", "Failed", "Created", "Started", "BackOff"}
_SHOWN = 20
"""Maximum number of servers and of models that are shown one by one."""
_MESSAGE_MAX = 1000


@dataclass(frozen=True)
class Line:
    """One part of the progress. `mark`: ✓ done, … going on, ✗ failed."""

    subject: str
    mark: str
    text: str

    def __str__(self) -> str:
        return one_line(f"{self.mark} {self.subject}: {self.text}")


@dataclass(frozen=True)
class Outcome:
    """How a rollout stands at its end. `waits`: whether more time may solve the problem, without a change."""

    ready: bool
    reason: str
    message: str
    waits: bool = False

    def __str__(self) -> str:
        return one_line(f"{self.reason}: {self.message[:_MESSAGE_MAX]}")


def outcome(model: Object) -> Outcome | None:
    """Returns the outcome of the rollout of the current spec; None while it continues."""
    status = TritonModelStatus.model_validate(model.get("status", {}))
    found = {c.type: c for c in status.conditions}
    progressing, ready = found.get(PROGRESSING), found.get(READY)
    if not progressing or not ready or not _is_current(model, status) or progressing.status != "False":
        return None
    if progressing.reason != "Complete":
        # A node can become free, or be added by an autoscaler of nodes.
        return Outcome(False, progressing.reason, progressing.message, waits=progressing.reason == "Unschedulable")
    return Outcome(ready.status == "True", ready.reason, ready.message)


def state(model: Object) -> str:
    """Returns what the rollout waits for, as the operator reports it."""
    status = TritonModelStatus.model_validate(model.get("status", {}))
    if not _is_current(model, status):
        return "the operator hasn't processed the latest change of the spec yet"
    progressing: Condition | None = next((c for c in status.conditions if c.type == PROGRESSING), None)
    return f"{progressing.reason}: {progressing.message[:_MESSAGE_MAX]}" if progressing else "no condition yet"


def lines(model: Object, pods: Sequence[Object], events: Mapping[str, Sequence[Object]]) -> list[Line]:
    """Returns the progress: the rollout, each new server, each model, and the number of ready servers.

    `events`: Events of pods, by the pod's name.
    """
    status = TritonModelStatus.model_validate(model.get("status", {}))
    ended = outcome(model)
    mark = "…" if ended is None else "✓" if ended.ready else "✗"
    found = [Line("rollout", mark, state(model))]
    new = current(pods)
    found += [_server(pod, events.get(pod["metadata"]["name"], ())) for pod in new[:_SHOWN]]
    if len(new) > _SHOWN:
        found.append(Line("servers", "…", f"{len(new) - _SHOWN} more aren't shown"))
    if _is_current(model, status):
        # A failed model comes first. `models` is sorted by name otherwise.
        models = sorted(status.models, key=lambda m: m.state == "READY")
        for one in models[:_SHOWN]:
            reason = f": {one.reason[:_MESSAGE_MAX]}" if one.reason else ""
            done = "✓" if one.state == "READY" else "✗" if one.state == "UNAVAILABLE" and reason else "…"
            version = f" version {one.version}" if one.version else ""
            found.append(Line(f"model {one.name}{version}", done, f"{one.state} on {one.pods} servers{reason}"))
        if len(models) > _SHOWN:
            found.append(Line("models", "…", f"{status.loaded} loaded; {len(models) - _SHOWN} more aren't shown"))
    ready, all_ = status.ready_replicas, status.replicas
    found.append(Line("ready servers", "✓" if all_ and ready == all_ else "…", f"{ready}/{all_}"))
    return found


def current(pods: Sequence[Object]) -> list[Object]:
    """Returns the living pods with the newest pod template, by name: the template of the youngest pod."""
    living = [p for p in pods if judge.alive(p)]
    if not living:
        return []
    youngest = max(living, key=lambda p: str(p["metadata"].get("creationTimestamp", "")))
    template = youngest["metadata"].get("annotations", {}).get(names.ANNOTATION_TEMPLATE, "")
    return sorted((p for p in living if judge.is_current(p, template)), key=lambda p: str(p["metadata"]["name"]))


def starting(pods: Sequence[Object], most: int) -> list[Object]:
    """Returns at most this many of the new pods that aren't ready: the pods whose Events tell more."""
    return [p for p in current(pods) if not judge.is_ready(p)][:most]


def _server(pod: Object, events: Sequence[Object]) -> Line:
    subject = f"server {pod['metadata']['name']}"
    if judge.is_ready(pod):
        return Line(subject, "✓", _bar(len(STEPS)) + " serving")
    phase = judge.phase(pod)
    bar = _bar(STEPS.index(phase.reason) if phase.reason in STEPS else len(STEPS))
    if found := judge.problem(pod):
        return Line(subject, "✗", f"{bar} {found.reason}: {found.message[:_MESSAGE_MAX]}")
    return Line(subject, "…", f"{bar} {_pulling(events) or phase.message}")


def _bar(done: int) -> str:
    return "■" * done + "□" * (len(STEPS) - done)


def _pulling(events: Sequence[Object]) -> str:
    """Returns the kubelet's message about the image that is being pulled; "" if there is none."""
    # In the same second the end counts as later.
    last = max(events, key=lambda e: (event_time(e), e.get("reason") in _PULL_ENDS), default={})
    return str(last.get("message", ""))[:_MESSAGE_MAX] if last.get("reason") == "Pulling" else ""


def event_time(event: Object) -> str:
    """Returns the time of the Event's last occurrence, to the second; "" if it has none."""
    series = (event.get("series") or {}).get("lastObservedTime")
    created = event["metadata"].get("creationTimestamp")
    return str(series or event.get("lastTimestamp") or event.get("eventTime") or created or "")[:19]


def _is_current(model: Object, status: TritonModelStatus) -> bool:
    return status.observed_generation >= int(model["metadata"].get("generation", 0))
