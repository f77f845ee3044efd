"""The search for the highest request rate that meets a latency target. Pure: it asks for measurements.

It doubles the rate until the target is missed, bisects, and confirms the result with three longer measurements, of
which two must meet the target. The number of measurements and their time are bounded for every server, also for one
that answers at random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal

Phase = Literal["doubling", "bisection", "confirmation"]
CONFIRMATIONS = 3
MAX_STEPS = 64
MAX_RATE = 1e6
MIN_RATE = 0.01
_KEPT_UP = 0.95
"""The load generator limits the measurement if it sends less than this part of the requested rate."""
_REDUCTIONS = (0.05, 0.05, 0.1, 0.2)
"""By how much the rate is reduced each time that it isn't confirmed."""
_MIN_SECONDS, _MAX_SECONDS = 10.0, 120.0
_REQUESTS = {"doubling": 500, "bisection": 1000, "confirmation": 2000}
"""The number of requests of a measurement, unless it would be too short or too long."""
_TARGETS = 20
"""A measurement lasts at least this many latency targets. Otherwise a queue that grows slowly could meet the target."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What the search looks for: the target of p99 and the time limit in seconds, and the relative precision."""

    p99: float
    precision: float = 0.05
    limit: float = 1800.0


@dataclass(frozen=True, slots=True)
class Step:
    """The next measurement: send `rate` requests per second for `seconds`."""

    phase: Phase
    rate: float
    seconds: float
    number: int


@dataclass(frozen=True, slots=True)
class Point:
    """The result of a measurement.

    `sent` is the rate that the load generator reached, in requests per second. `p50`, `p99` and `took` are in seconds;
    a latency is infinite if the requests weren't answered. `failures` counts failed and unanswered requests.
    """

    phase: Phase
    rate: float
    sent: float
    p50: float
    p99: float
    requests: int
    failures: int
    took: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the search.

    `rate` is the confirmed rate, or None; then `reason` says why. `at_least`: the load generator was the limit, so the
    server can handle more.
    """

    points: tuple[Point, ...]
    rate: float | None = None
    at_least: bool = False
    reason: str = ""

    @property
    def confirmations(self) -> tuple[Point, ...]:
        """The measurements that confirmed the rate."""
        return tuple(p for p in self.points if p.phase == "confirmation" and p.rate == self.rate)


Steps = Generator[Step, Point, Outcome]
_Part = Generator[Step, Point, Point]


class _StoppedError(Exception):
    """The search ends without a result. The message says why."""


def fault(point: Point, goal: Goal) -> str:
    """Returns why the server doesn't handle this rate; "" if it does."""
    if point.failures or point.requests <= 0:
        return f"{point.failures} of {point.requests} requests failed"
    if not point.p99 <= goal.p99:
        return f"p99 is {point.p99 * 1000:.0f} ms"
    return ""


def limited(point: Point) -> bool:
    """Returns whether the load generator couldn't send the requested rate."""
    return not point.sent >= _KEPT_UP * point.rate


def window(rate: float, goal: Goal, phase: Phase) -> float:
    """Returns how long to measure, in seconds: for a number of requests, or longer for a high target, within bounds."""
    return min(_MAX_SECONDS, max(_MIN_SECONDS, _REQUESTS[phase] / rate, _TARGETS * goal.p99))


def search(goal: Goal, start: float) -> Steps:
    """Searches from `start` requests per second. Yields each measurement to make, and expects its Point."""
    taken: list[Point] = []

    def measure(rate: float, phase: Phase) -> _Part:
        seconds = window(rate, goal, phase)
        if len(taken) >= MAX_STEPS:
            raise _StoppedError(f"no result after {MAX_STEPS} measurements")
        if sum(max(0.0, p.took) for p in taken) + seconds > goal.limit:
            raise _StoppedError(f"the time limit of {goal.limit:.0f} s is reached")
        point = yield Step(phase, rate, seconds, len(taken) + 1)
        taken.append(point)
        return point

    try:
        low, high = yield from _doubled(goal, start, measure)
        at_least = high == math.inf
        while not at_least and high > low * (1 + goal.precision):
            middle = (low + high) / 2
            point = yield from measure(middle, "bisection")
            if fault(point, goal):
                high = middle
            else:
                low = middle
        rate = yield from _confirmed(goal, low, measure)
    except _StoppedError as stopped:
        return Outcome(tuple(taken), reason=str(stopped))
    return Outcome(tuple(taken), rate, at_least)


def _doubled(
    goal: Goal, start: float, measure: Callable[[float, Phase], _Part]
) -> Generator[Step, Point, tuple[float, float]]:
    """Returns a rate that meets the target and one that misses it; infinity if the load generator is the limit.

    Raises _StoppedError if requests fail although no rate has met the target yet.
    """
    low, rate = 0.0, min(MAX_RATE, max(MIN_RATE, start))
    while True:
        point = yield from measure(rate, "doubling")
        wrong = fault(point, goal)
        if not wrong and limited(point):
            # Nothing is known about rates above the one that was sent.
            sent = point.sent if point.sent >= MIN_RATE else 0.0
            if not max(low, sent):
                raise _StoppedError(f"the load generator sent {point.sent:.4g} of {rate:.4g} requests/s")
            return max(low, sent), math.inf
        if not wrong and rate * 2 > MAX_RATE:
            return rate, math.inf
        if not wrong:
            low, rate = rate, rate * 2
        elif low:
            return low, rate
        elif point.failures or point.requests <= 0:
            raise _StoppedError(f"{wrong} at {rate:.4g} requests/s: {point.error or 'no reason given'}")
        elif rate / 2 < MIN_RATE:
            raise _StoppedError(f"the target is missed even at {rate:.4g} requests/s: {wrong}")
        else:
            rate /= 2


def _confirmed(goal: Goal, rate: float, measure: Callable[[float, Phase], _Part]) -> Generator[Step, Point, float]:
    """Returns the highest rate, from `rate` down, at which most confirmations meet the target and no request fails.

    p99 of some thousand requests scatters. If every confirmation had to meet the target, the result would be too low.
    """
    for reduction in (*_REDUCTIONS, 0):
        missed = 0
        for _ in range(CONFIRMATIONS):
            point = yield from measure(rate, "confirmation")
            missed += CONFIRMATIONS if point.failures or point.requests <= 0 else bool(fault(point, goal))
            if missed > CONFIRMATIONS // 2:
                break
        else:
            return rate
        rate *= 1 - reduction
    raise _StoppedError("the latency varies too much: repeated measurements at the same rate contradict each other")


def run(steps: Steps, measure: Callable[[Step], Point], show: Callable[[Step, Point], None]) -> Outcome:
    """Makes the measurements of a search with `measure`, shows each result, and returns the outcome."""
    try:
        step = next(steps)
        while True:
            point = measure(step)
            show(step, point)
            step = steps.send(point)
    except StopIteration as ended:
        outcome: Outcome = ended.value
        return outcome


def proposal(rate: float) -> str:
    """Returns the rate as the value of a threshold: three significant digits, rounded down."""
    digits = 2 - math.floor(math.log10(rate))
    return f"{math.floor(rate * 10.0**digits + 1e-9) / 10.0**digits:.{max(0, digits)}f}"
