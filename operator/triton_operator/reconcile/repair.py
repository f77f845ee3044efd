"""Replaces a server that has stopped answering spec.healthRequest. Pure.

docs/decisions/0041-health-request.md
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from triton_operator.api.status import MAX_EVICTIONS
from triton_operator.api.types import HealthRequest
from triton_operator.pods import Pod

from .snapshot import Object, Snapshot
from .steps import Evict, ReconcileAfter

_LEAST_PATIENCE = timedelta(seconds=30)
_PAUSES = tuple(timedelta(minutes=minutes) for minutes in (0, 2, 10, 60, 240))
"""The pause before another eviction, by the number of those in the last day: 0 to MAX_EVICTIONS - 1."""
_DAY = timedelta(days=1)


def repair(snapshot: Snapshot, template: str) -> Iterator[Evict | ReconcileAfter]:
    """Yields the eviction of one server, or when to look again. `template`: the hash of the desired pod template.

    Evicts none while servers are being replaced, and none if no server answers: then the request, the model or what it
    depends on is to blame. A server alone is evicted, since nobody gets an answer anyway.
    """
    spec, pods = snapshot.model.spec, [pod for pod in snapshot.pods if not pod.has_ended]
    if spec.health_request is None or spec.repair != "Restart" or not _settled(pods, snapshot.deployment, template):
        return
    stopped = sorted((since, pod.name, pod) for pod in pods if (since := pod.stopped_answering))
    if not stopped or (len(pods) > 1 and not any(pod.is_ready for pod in pods)):
        return
    since, _, pod = stopped[0]
    now = snapshot.time
    wait = max(since + _patience(spec.health_request), next_allowed(snapshot.before.evictions, now)) - now
    if wait > timedelta():
        yield ReconcileAfter(wait.total_seconds())
    else:
        yield Evict(pod)


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
    times = [time for text in evictions if (time := _time(text)) and now - _DAY < time <= now]
    if not times:
        return now
    return times[-1] + _PAUSES[len(times)] if len(times) < MAX_EVICTIONS else times[-MAX_EVICTIONS] + _DAY


def _time(text: str) -> datetime | None:
    """Returns the time; None for a text that isn't RFC 3339, which others may have written into the status."""
    with contextlib.suppress(ValueError):
        time = datetime.fromisoformat(text)
        return time if time.tzinfo else None
    return None


def _settled(pods: Sequence[Pod], deployment: Object | None, template: str) -> bool:
    """Returns whether no server is missing, starting, ending, or of another pod template.

    One for which there is no node doesn't count: that may last for days.
    """
    return len(pods) == (deployment or {}).get("spec", {}).get("replicas") and all(
        pod.is_current(template) and (pod.is_ready or pod.stopped_answering is not None or not pod.is_scheduled)
        for pod in pods
    )
