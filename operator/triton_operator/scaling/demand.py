"""Computes the demand from samples of the servers' counters, as the recording rules do (render/rules/recording.py)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from triton_operator.api.servers import History

STALE_SECONDS = 6.0
"""A server without a sample for this long counts as one that doesn't answer. It is the time of three polls,
and longer than a poll may take."""
_MIN_SECONDS = 1.0
"""Minimum length of a measurement: two polls."""
_MOST = 1e12
"""Requests per second of one server. More is the lie of a hostile server, and would overflow."""


def demand(histories: Mapping[str, History], since: Mapping[str, float], now: float, seconds: float) -> float | None:
    """Returns the requests per second that arrived in the last `seconds`: answered, failed and added to a queue.

    Returns None if no server has answered recently, or if the time since the first sample is too short.

    A server that doesn't answer counts as its last known demand, or the mean of the others if that is more.

    - `histories`: samples of each server.
    - `since`: when each server was seen first.
    """
    fresh = {pod for pod, history in histories.items() if history and now - history[-1].at < STALE_SECONDS}
    if not fresh:
        return None
    end = max(histories[pod][-1].at for pod in fresh)
    begin = max(end - seconds, min(histories[pod][0].at for pod in fresh))
    if end - begin < _MIN_SECONDS:
        return None
    known = [_rate(histories[pod], begin, end) for pod in fresh]
    mean = sum(known) / len(known)
    silent = [pod for pod in histories if pod not in fresh and now - since[pod] >= STALE_SECONDS]
    missing = [max(mean, _last_rate(histories[pod], seconds)) for pod in silent]
    return sum(known) + sum(missing)


def queued(histories: Mapping[str, History]) -> float:
    """Returns the number of requests that wait on all servers."""
    return sum(min(_MOST, history[-1].waiting) for history in histories.values() if history)


def _rate(history: History, begin: float, end: float) -> float:
    """Returns the demand of one server between `begin` and `end`, in requests per second of that whole time.

    So a server that is younger doesn't count the requests twice that another served before.
    """
    first = next((n for n in range(len(history) - 1, 0, -1) if history[n].at <= begin), 0)
    inside = history[first:]
    late = inside[0].at - begin > STALE_SECONDS
    elapsed = end - begin if late else inside[-1].at - inside[0].at
    if elapsed <= 0:
        return 0.0
    # A counter that falls was reset. What it counted before it was read isn't known.
    served = sum(max(0.0, b.requests - a.requests) for a, b in itertools.pairwise(inside))
    # A shrinking queue doesn't reduce the demand.
    growth = max(0.0, inside[-1].waiting - inside[0].waiting)
    return min(_MOST, (served + growth) / elapsed)


def _last_rate(history: History, seconds: float) -> float:
    return _rate(history, history[-1].at - seconds, history[-1].at) if history else 0.0
