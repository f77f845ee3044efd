"""The progress of a start or a rollout, from a TritonModel, its pods and their Events. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triton_operator.api import names
from triton_operator.api.status import PROGRESSING, READY, Condition, TritonModelStatus, status_of
from triton_operator.pods import Pod
from triton_operator.pods.problems import problem_of, step_of
from triton_repository_check.text import one_line

Object = dict[str, Any]
STEPS = (
    "Scheduling",
    "PreparingRepository",
    "FetchingRepository",
    "CheckingRepository",
    "LoadingModels",
    "EntrypointNotReady",
)
"""The steps of a server on the way to Ready, in their order (pods/problems.py).
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
class RolloutEnd:
    """How a rollout stands at its end. `waits`: whether more time may solve the problem, without a change."""

    ready: bool
    reason: str
    message: str
    waits: bool = False

    def __str__(self) -> str:
        return one_line(f"{self.reason}: {self.message[:_MESSAGE_MAX]}")


def outcome(model: Object) -> RolloutEnd | None:
    """Returns the outcome of the rollout of the current spec; None while it continues."""
    status = status_of(model)
    conditions = {c.type: c for c in status.conditions}
    progressing, ready = conditions.get(PROGRESSING), conditions.get(READY)
    if not progressing or not ready or not _is_current(model, status) or progressing.status != "False":
        return None
    if progressing.reason != "Complete":
        # A node can become free, or be added by an autoscaler of nodes.
        return RolloutEnd(False, progressing.reason, progressing.message, waits=progressing.reason == "Unschedulable")
    return RolloutEnd(ready.status == "True", ready.reason, ready.message)


def state(model: Object) -> str:
    """Returns what the rollout waits for, as the operator reports it."""
    status = status_of(model)
    if not _is_current(model, status):
        return "the operator hasn't processed the latest change of the spec yet"
    progressing: Condition | None = next((c for c in status.conditions if c.type == PROGRESSING), None)
    return f"{progressing.reason}: {progressing.message[:_MESSAGE_MAX]}" if progressing else "no condition yet"


def lines(model: Object, pods: Sequence[Pod], events: Mapping[str, Sequence[Object]]) -> list[Line]:
    """Returns the progress: the rollout, each new server, each model, and the number of ready servers.

    `events`: Events of pods, by the pod's name.
    """
    status = status_of(model)
    end = outcome(model)
    mark = "…" if end is None else "✓" if end.ready else "✗"
    rows = [Line("rollout", mark, state(model))]
    servers = current(pods)
    rows += [_server(pod, events.get(pod.name, ())) for pod in servers[:_SHOWN]]
    if len(servers) > _SHOWN:
        rows.append(Line("servers", "…", f"{len(servers) - _SHOWN} more aren't shown"))
    if _is_current(model, status):
        # A failed model comes first. `models` is sorted by name otherwise.
        models = sorted(status.models, key=lambda m: m.state == "READY")
        for entry in models[:_SHOWN]:
            reason = f": {entry.reason[:_MESSAGE_MAX]}" if entry.reason else ""
            symbol = "✓" if entry.state == "READY" else "✗" if entry.state == "UNAVAILABLE" and reason else "…"
            version = f" version {entry.version}" if entry.version else ""
            rows.append(Line(f"model {entry.name}{version}", symbol, f"{entry.state} on {entry.pods} servers{reason}"))
        if len(models) > _SHOWN:
            rows.append(Line("models", "…", f"{status.loaded} loaded; {len(models) - _SHOWN} more aren't shown"))
    ready, total = status.ready_replicas, status.replicas
    rows.append(Line("ready servers", "✓" if total and ready == total else "…", f"{ready}/{total}"))
    return rows


def current(pods: Sequence[Pod]) -> list[Pod]:
    """Returns the living pods with the newest pod template, by name: the template of the youngest pod."""
    living = [p for p in pods if p.is_alive]
    if not living:
        return []
    youngest = max(living, key=lambda p: str(p.raw["metadata"].get("creationTimestamp", "")))
    template = youngest.raw["metadata"].get("annotations", {}).get(names.ANNOTATION_TEMPLATE, "")
    return sorted((p for p in living if p.is_current(template)), key=lambda p: p.name)


def starting(pods: Sequence[Pod], most: int) -> list[Pod]:
    """Returns at most this many of the new pods that aren't ready: the pods whose Events tell more."""
    return [p for p in current(pods) if not p.is_ready][:most]


def _server(pod: Pod, events: Sequence[Object]) -> Line:
    subject = f"server {pod.name}"
    if pod.is_ready:
        return Line(subject, "✓", _bar(len(STEPS)) + " serving")
    phase = step_of(pod)
    bar = _bar(STEPS.index(phase.reason) if phase.reason in STEPS else len(STEPS))
    if problem := problem_of(pod):
        return Line(subject, "✗", f"{bar} {problem.reason}: {problem.message[:_MESSAGE_MAX]}")
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
