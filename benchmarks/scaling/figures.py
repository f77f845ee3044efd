"""What came of a load: pure computations on what was recorded."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

WINDOW_SECONDS = 300.0
"""Two changes of the number of servers in opposite directions within this time are an oscillation."""


@dataclass(frozen=True)
class Change:
    """The Deployment from `at` on, in seconds since the load began: servers requested, and ready servers."""

    at: float
    desired: int
    ready: int


@dataclass(frozen=True)
class Outcome:
    """What came of one load with one engine.

    - `late`: seconds with more demand than the ready servers handle. `unavoidable`: the late seconds that remain with
      the maximum number of servers from the first second on.
    - `sent`: all requests. `slow`, `failed`: requests that took more than a second, and that failed.
    - `mean`, `most`: servers requested.
    - `reaction`: seconds from the step to the first server that was requested; None without a step or a reaction.
    """

    late: int
    unavoidable: int
    mean: float
    most: int
    oscillations: int
    sent: int
    slow: int
    failed: int
    reaction: float | None = None


def late_seconds(arrived: Sequence[int], changes: Sequence[Change], per_server: float) -> int:
    """Returns the number of seconds in which the demand is more than the ready servers handle.

    The demand of a second is the requests that arrive in it, and those that the servers could not handle before. A
    server handles `per_server` requests in a second.
    """
    waiting, late = 0.0, 0
    for second, number in enumerate(arrived):
        demand = waiting + number
        waiting = max(0.0, demand - per_server * _at(changes, second).ready)
        late += waiting > 0
    return late


def mean_servers(changes: Sequence[Change], seconds: float) -> float:
    """Returns the mean number of servers that were requested."""
    ends = [*(change.at for change in changes[1:]), seconds]
    parts = (
        change.desired * max(0.0, min(end, seconds) - max(0.0, change.at))
        for change, end in zip(changes, ends, strict=True)
    )
    return sum(parts) / seconds


def first_rise(changes: Sequence[Change], since: float) -> float | None:
    """Returns the seconds from `since` to the first rise of the servers that were requested; None without one."""
    rises = (b.at for a, b in itertools.pairwise(changes) if b.desired > a.desired and b.at >= since)
    at = next(rises, None)
    return None if at is None else at - since


def oscillations(changes: Sequence[Change]) -> int:
    """Returns how often the number of servers changes its direction within the window."""
    moves = [(b.at, b.desired > a.desired) for a, b in itertools.pairwise(changes) if a.desired != b.desired]
    return sum(up != was and at - before <= WINDOW_SECONDS for (before, was), (at, up) in itertools.pairwise(moves))


def falls(changes: Sequence[Change], begin: float, end: float) -> bool:
    """Returns whether the number of servers that were requested falls between `begin` and `end`."""
    return any(b.desired < a.desired and begin <= b.at <= end for a, b in itertools.pairwise(changes))


def _at(changes: Sequence[Change], second: float) -> Change:
    return next((change for change in reversed(changes) if change.at <= second), changes[0])
