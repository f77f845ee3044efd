"""Computes the demand from samples of the servers' counters, as the recording rules do (render/rules/recording.py)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from triton_operator.api.servers import History, Sample

Counted = Callable[[Sample, Sample], float]
"""What counts between two samples of a server."""

STALE_SECONDS = 6.0
"""A server without a sample for this long counts as one that doesn't answer. It is the time of three polls,
and longer than a poll may take."""
_MIN_SECONDS = 1.0
"""Minimum length of a measurement: two polls."""
_MOST = 1e12
"""Requests or tokens per second of one server, or its streams. More is the lie of a hostile server, and would
overflow."""


def arrived(before: Sample, after: Sample) -> float:
    """Returns the requests that arrived between two samples of a server: answered, or added to its queue.

    A request counts when it is queued, so it is subtracted when the queue gets shorter. A queue that gets shorter by
    more than the server answered has vanished in a crash. A counter that falls was reset: what it counted before it was
    read isn't known.
    """
    answered = max(0.0, after.requests - before.requests)
    return answered + max(after.waiting - before.waiting, -answered)


def generated(before: Sample, after: Sample) -> float:
    """Returns the tokens between two samples of a server; 0 if one of them couldn't be read (NaN).

    A counter that falls was reset.
    """
    tokens = after.tokens - before.tokens
    return tokens if tokens > 0 else 0.0


def streamed(before: Sample, after: Sample) -> float:
    """Returns the seconds that all streams of a server were open between two samples: of 3 streams, 6 in 2 seconds."""
    return _lasted(after.streams, before, after)


def cached(before: Sample, after: Sample) -> float:
    """Like `streamed`, for the KV cache in use."""
    return _lasted(after.cache, before, after)


def _lasted(gauge: float, before: Sample, after: Sample) -> float:
    """Returns the gauge times the seconds between two samples; 0 if it couldn't be read (NaN)."""
    product = gauge * (after.at - before.at)
    return product if product > 0 else 0.0


def demand(
    histories: Mapping[str, History],
    since: Mapping[str, float],
    now: float,
    seconds: float,
    counted: Counted = arrived,
) -> float | None:
    """Returns what was `counted` per second in the last `seconds`, such as the requests that arrived.

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
    rates = [_rate(histories[pod], begin, end, counted) for pod in fresh]
    mean = sum(rates) / len(rates)
    silent = [pod for pod in histories if pod not in fresh and now - since[pod] >= STALE_SECONDS]
    missing = [max(mean, _last_rate(histories[pod], seconds, counted)) for pod in silent]
    return sum(rates) + sum(missing)


def queued(histories: Mapping[str, History]) -> float:
    """Returns the number of requests that wait on all servers."""
    return sum(min(_MOST, history[-1].waiting) for history in histories.values() if history)


def _rate(history: History, begin: float, end: float, counted: Counted) -> float:
    """Returns the demand of one server between `begin` and `end`, per second of that whole time.

    So a server that is younger doesn't count the requests twice that another served before.
    """
    first = next((n for n in range(len(history) - 1, 0, -1) if history[n].at <= begin), 0)
    samples = history[first:]
    late = samples[0].at - begin > STALE_SECONDS
    elapsed = end - begin if late else samples[-1].at - samples[0].at
    if elapsed <= 0:
        return 0.0
    return min(_MOST, max(0.0, sum(itertools.starmap(counted, itertools.pairwise(samples)))) / elapsed)


def _last_rate(history: History, seconds: float, counted: Counted) -> float:
    return _rate(history, history[-1].at - seconds, history[-1].at, counted) if history else 0.0
