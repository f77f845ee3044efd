"""Replaces a server that has stopped answering spec.healthRequest. Pure.

docs/decisions/0041-health-request.md
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from triton_operator.api.status import MAX_EVICTIONS
from triton_operator.api.types import HealthRequest
from triton_operator.pods import Pod
from triton_operator.pods.group import Group
from triton_operator.pods.problems import problem_of
from triton_operator.render.deployment import progress_seconds

from .memory import SilentServers
from .snapshot import Snapshot
from .steps import Evict, ReconcileAfter

_LEAST_PATIENCE = timedelta(seconds=30)
_LATE = timedelta(minutes=1)
"""How long after its time a server may take to end."""
_PAUSES = tuple(timedelta(minutes=minutes) for minutes in (0, 2, 10, 60, 240))
"""The pause before another eviction, by the number of those in the last day: 0 to MAX_EVICTIONS - 1."""
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Repair:
    """What to do about a server that doesn't answer.

    - `step`: its eviction, or when to look again; None if nothing is to be done before a pod changes.
    - `note`: what comes next, with the name of the server, for the status; "" if no server needs a repair.
    """

    step: Evict | ReconcileAfter | None = None
    note: str = ""


NO_REPAIR = Repair()


@dataclass(frozen=True)
class _Event:
    """What is about to happen to a server, and the time after which nobody waits for it."""

    words: str
    until: datetime | None = None


def repair(snapshot: Snapshot, groups: Sequence[Group], silent: SilentServers, *, changes_models: bool) -> Repair:
    """Returns the eviction of one server, or why there is none now.

    Evicts none that says itself that it isn't ready: no request has failed there. Evicts none while another is about to
    start or to end, and none if several don't answer and no other does: then the request, the model or what it depends
    on is to blame. A server alone is evicted, since nobody gets an answer anyway, after the time that a start takes: a
    shorter outage of what it depends on isn't worth one. Doesn't wait for servers that don't start: without a node or a
    quota, with a crash in each start.

    - `groups`: those of the snapshot, each with the desired pod template. Clients call all of them by one address.
    - `silent`: from `look`, with this snapshot.
    - `changes_models`: whether the models of a running server are being changed now.
    """
    spec, now = snapshot.model.spec, snapshot.time
    if spec.health_request is None or spec.repair != "Restart":
        return NO_REPAIR
    pods = [(group, pod) for group in groups for pod in group.pods if not pod.has_ended]
    not_ready = _not_ready(snapshot)
    stopped = sorted((_since(pod, silent), pod.name, group, pod) for group, pod in pods if pod.stopped_answering)
    if not stopped:
        return NO_REPAIR
    since, name, group, pod = next((entry for entry in stopped if entry[1] not in not_ready), stopped[0])
    if name in not_ready:
        return Repair(
            note=f"{name} isn't evicted, because it says itself that it isn't ready: its model isn't loaded, or "
            "`is_ready` in model.py says no"
        )
    if changes_models:
        return Repair(note=f"{name} isn't evicted while the models of a server change")
    if event := next(_events(groups, snapshot.ending, now), None):
        wait = ReconcileAfter((event.until - now).total_seconds()) if event.until else None
        return Repair(wait, f"{name} isn't evicted while {event.words}")
    alone = not any(pod.is_ready for pod in snapshot.pods)
    if alone and len(stopped) > 1:
        return Repair(
            note=f"{name} isn't evicted, because no server answers: the request, the model or what it depends on is to "
            "blame"
        )
    if snapshot.servers.not_ready.get(name, False) is None:
        # The answer causes a reconcile.
        return Repair(note=f"{name} isn't evicted before it has said whether it is ready itself")
    patience = _patience(spec.health_request)
    if alone:
        patience = max(patience, _start(group, silent))
    due, allowed = since + patience, next_allowed(snapshot.before.evictions, now)
    wait_seconds = (max(due, allowed) - now).total_seconds()
    if wait_seconds <= 0:
        return Repair(Evict(pod))
    if allowed > due:
        number = len(_last_day(snapshot.before.evictions, now))
        servers = "a server was" if number == 1 else f"{number} servers were"
        why = f"{servers} evicted in the last 24 hours, so {name} is evicted at {allowed:%H:%M:%S} UTC"
    else:
        why = f"{name} is evicted at {due:%H:%M:%S} UTC"
    return Repair(ReconcileAfter(wait_seconds), f"{why} unless it answers")


def look(snapshot: Snapshot, groups: Sequence[Group], before: SilentServers) -> SilentServers:
    """Returns what is seen of servers that don't answer, with what was seen `before`. `groups`: as for `repair`."""
    now, pods = snapshot.time, [pod for pod in snapshot.pods if not pod.has_ended]
    stopped = {pod.raw["metadata"]["uid"]: pod.name for pod in pods if pod.stopped_answering}
    not_ready = _not_ready(snapshot)
    last = {uid: time for uid, time in before.not_ready.items() if uid in stopped}
    starts: dict[str, float] = {}
    for group in groups:
        if shortest := shortest_start(group, before):
            starts[group.template] = shortest
    return SilentServers(
        {uid: min(before.stopped.get(uid, now), now) for uid in stopped},
        last | {uid: now for uid, name in stopped.items() if name in not_ready},
        starts,
    )


def shortest_start(group: Group, before: SilentServers) -> float | None:
    """Returns the shortest time in which a server of the group's template became ready, in seconds; None if unknown."""
    times = [seconds for pod in group.current if (seconds := pod.start_seconds) is not None]
    return min([*times, *(known for known in [before.starts.get(group.template)] if known)], default=None)


def _not_ready(snapshot: Snapshot) -> list[str]:
    """Returns the servers that say themselves that they aren't ready."""
    return [name for name, itself in snapshot.servers.not_ready.items() if itself]


def _since(pod: Pod, silent: SilentServers) -> datetime:
    """Returns since when the server doesn't answer.

    With a sidecar, the pod's condition may be older: the sidecar wasn't ready before.
    """
    uid, since = pod.raw["metadata"]["uid"], pod.stopped_answering or datetime.max
    since = max(since, silent.not_ready.get(uid, since))
    return since if len(pod.status["containerStatuses"]) == 1 else max(since, silent.stopped[uid])


def _start(group: Group, silent: SilentServers) -> timedelta:
    """Returns how long a start takes; spec.rollout.startupSeconds if that isn't known, or if a start took longer."""
    longest = group.model.spec.rollout.startup_seconds
    return timedelta(seconds=min(longest, silent.starts.get(group.template, longest)))


def _patience(request: HealthRequest) -> timedelta:
    """Returns how long a server may be without an answer.

    In this time the requests of all servers fail, if they fail for the same reason, and a kubelet that has restarted
    has sent its first one.
    """
    return max(_LEAST_PATIENCE, timedelta(seconds=request.every_seconds + 3 * request.timeout_seconds + 5))


def next_allowed(evictions: Sequence[str], now: datetime) -> datetime:
    """Returns when the next eviction is allowed after these (RFC 3339, the first one first).

    Ignores those later than `now`: the clock was set back, or that of an earlier leader was ahead.
    """
    times = _last_day(evictions, now)
    if not times:
        return now
    return times[-1] + _PAUSES[len(times)] if len(times) < MAX_EVICTIONS else times[-MAX_EVICTIONS] + _DAY


def _last_day(evictions: Sequence[str], now: datetime) -> list[datetime]:
    return [time for text in evictions if (time := _time(text)) and now - _DAY < time <= now]


def _time(text: str) -> datetime | None:
    """Returns the time; None for a text that isn't RFC 3339, which others may have written into the status."""
    with contextlib.suppress(ValueError):
        time = datetime.fromisoformat(text)
        return time if time.tzinfo else None
    return None


def _events(groups: Iterable[Group], ending: Iterable[Pod], now: datetime) -> Iterator[_Event]:
    """Yields what is about to happen to the servers. `ending`: those of no group."""
    if any(len(group.living) < group.desired and group.refusal is None for group in groups):
        yield _Event("a server is missing")
    for pod in (*(pod for group in groups for pod in group.pods), *ending):
        if not pod.has_ended and pod.ends and (until := pod.ends + _LATE) > now:
            yield _Event(f"{pod.name} ends", until)
    for group in groups:
        startup_seconds = group.model.spec.rollout.startup_seconds
        for pod in group.living:
            starts = not pod.server_is_ready and not pod.stopped_answering
            if starts and (until := _ready_at(pod, startup_seconds)) > now:
                yield _Event(f"{pod.name} starts", until)


def _ready_at(pod: Pod, startup_seconds: int) -> datetime:
    """Returns when a server that isn't ready should be; the past if it has a problem before its start."""
    if pod.server_began:
        return pod.server_began + timedelta(seconds=pod.startup_seconds or startup_seconds) + _LATE
    return pod.created + (timedelta() if problem_of(pod) else timedelta(seconds=progress_seconds(startup_seconds)))
