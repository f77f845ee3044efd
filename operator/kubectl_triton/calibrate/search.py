"""The search for the highest request rate that meets the latency targets. Pure: it asks for measurements.

It doubles the rate until a target is missed, bisects, and confirms the result with three longer measurements, of
which two must meet the target. The number of measurements and their time are bounded for every server, also for one
that answers at random.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Literal

Phase = Literal["doubling", "bisection", "confirmation"]
LATENCY, TTFT, TPOT = "latency", "ttft", "tpot"
"""The kinds of latency: until the last response; the time to the first token; the time per output token, which is the
mean time between the responses of one request. The first is measured of every model, the others of one that streams."""
NAMES = {LATENCY: "latency", TTFT: "TTFT", TPOT: "TPOT"}
P99 = {LATENCY: "p99", TTFT: "p99 of TTFT", TPOT: "p99 of TPOT"}
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
_ANSWERS = 3
"""A measurement of a model that streams lasts at least this many answers. Otherwise it would end before as many streams
are open at the same time as the rate brings about."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What the search looks for. Times are in seconds.

    `targets`: the target of p99 by the kind of latency, at least one. `precision` is relative, `limit` is the limit of
    the search. `answer`: how long a stream lasts at the targets; 0 for a model with one response.
    """

    targets: Mapping[str, float]
    precision: float = 0.05
    limit: float = 1800.0
    answer: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """The next measurement: send `rate` requests per second for `seconds`."""

    phase: Phase
    rate: float
    seconds: float
    number: int


@dataclass(frozen=True, slots=True)
class Latency:
    """Quantiles of one kind of latency over the requests of a measurement, in seconds."""

    p50: float
    p99: float


UNANSWERED = Latency(math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Point:
    """The result of a measurement.

    `sent` is the rate that the load generator reached, in requests per second. `latencies` has what was measured, by
    kind. `took` is in seconds. `failures` counts failed and unanswered requests, `responses` the responses of a model
    that streams.
    """

    phase: Phase
    rate: float
    sent: float
    latencies: Mapping[str, Latency]
    requests: int
    failures: int
    took: float
    error: str = ""
    responses: int = 0

    def latency(self, kind: str) -> Latency:
        """Returns the quantiles of one kind of latency; infinite ones if the requests weren't answered."""
        return self.latencies.get(kind, UNANSWERED)


@dataclass(frozen=True, slots=True)
class SearchResult:
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

    @property
    def tokens(self) -> float | None:
        """The tokens per second at the confirmed rate, with one token in each response; None without streams."""
        responses = sum(p.responses for p in self.confirmations)
        return self.rate * responses / sum(p.requests for p in self.confirmations) if self.rate and responses else None


Steps = Generator[Step, Point, SearchResult]
_Part = Generator[Step, Point, Point]


class _StoppedError(Exception):
    """The search ends without a result. The message says why."""


def fault(point: Point, goal: Goal) -> str:
    """Returns why the server doesn't handle this rate; "" if it does."""
    if point.failures or point.requests <= 0:
        return f"{point.failures} of {point.requests} requests failed"
    missed = [kind for kind, target in goal.targets.items() if not point.latency(kind).p99 <= target]
    return " and ".join(f"{P99[kind]} is {point.latency(kind).p99 * 1000:.0f} ms" for kind in missed)


def limited(point: Point) -> bool:
    """Returns whether the load generator couldn't send the requested rate."""
    return not point.sent >= _KEPT_UP * point.rate


def window(rate: float, goal: Goal, phase: Phase) -> float:
    """Returns how long to measure, in seconds.

    Long enough for a number of requests and for a high target, but within bounds; and always for some whole answers.
    """
    seconds = max(_MIN_SECONDS, _REQUESTS[phase] / rate, _TARGETS * max(goal.targets.values()))
    return max(min(_MAX_SECONDS, seconds), _ANSWERS * goal.answer)


def search(goal: Goal, start: float) -> Steps:
    """Searches from `start` requests per second. Yields each measurement to make, and expects its Point."""
    points: list[Point] = []

    def measure(rate: float, phase: Phase) -> _Part:
        seconds = window(rate, goal, phase)
        if len(points) >= MAX_STEPS:
            raise _StoppedError(f"no result after {MAX_STEPS} measurements")
        if sum(max(0.0, p.took) for p in points) + seconds > goal.limit:
            raise _StoppedError(f"the time limit of {goal.limit:.0f} s is reached")
        point = yield Step(phase, rate, seconds, len(points) + 1)
        points.append(point)
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
    except _StoppedError as stop:
        return SearchResult(tuple(points), reason=str(stop))
    return SearchResult(tuple(points), rate, at_least)


def _doubled(
    goal: Goal, start: float, measure: Callable[[float, Phase], _Part]
) -> Generator[Step, Point, tuple[float, float]]:
    """Returns a rate that meets the targets and one that misses one; infinity if the load generator is the limit.

    Raises _StoppedError if requests fail although no rate has met the targets yet.
    """
    low, rate = 0.0, min(MAX_RATE, max(MIN_RATE, start))
    while True:
        point = yield from measure(rate, "doubling")
        reason = fault(point, goal)
        if not reason and limited(point):
            # Nothing is known about rates above the one that was sent.
            sent = point.sent if point.sent >= MIN_RATE else 0.0
            if not max(low, sent):
                raise _StoppedError(f"the load generator sent {point.sent:.4g} of {rate:.4g} requests/s")
            return max(low, sent), math.inf
        if not reason and rate * 2 > MAX_RATE:
            return rate, math.inf
        if not reason:
            low, rate = rate, rate * 2
        elif low:
            return low, rate
        elif point.failures or point.requests <= 0:
            raise _StoppedError(f"{reason} at {rate:.4g} requests/s: {point.error or 'no reason given'}")
        elif rate / 2 < MIN_RATE:
            raise _StoppedError(f"a target is missed even at {rate:.4g} requests/s: {reason}")
        else:
            rate /= 2


def _confirmed(goal: Goal, rate: float, measure: Callable[[float, Phase], _Part]) -> Generator[Step, Point, float]:
    """Returns the highest rate, from `rate` down, at which most confirmations meet the targets and no request fails.

    p99 of some thousand requests scatters. If every confirmation had to meet the targets, the result would be too low.
    """
    for reduction in (*_REDUCTIONS, 0):
        misses = 0
        for _ in range(CONFIRMATIONS):
            point = yield from measure(rate, "confirmation")
            misses += CONFIRMATIONS if point.failures or point.requests <= 0 else bool(fault(point, goal))
            if misses > CONFIRMATIONS // 2:
                break
        else:
            return rate
        rate *= 1 - reduction
    raise _StoppedError("the latency varies too much: repeated measurements at the same rate contradict each other")


def run(steps: Steps, measure: Callable[[Step], Point], show: Callable[[Step, Point], None]) -> SearchResult:
    """Makes the measurements of a search with `measure`, shows each result, and returns the outcome."""
    try:
        step = next(steps)
        while True:
            point = measure(step)
            show(step, point)
            step = steps.send(point)
    except StopIteration as end:
        outcome: SearchResult = end.value
        return outcome


def proposal(rate: float) -> str:
    """Returns the rate as the value of a threshold: three significant digits, rounded down."""
    digits = 2 - math.floor(math.log10(rate))
    return f"{math.floor(rate * 10.0**digits + 1e-9) / 10.0**digits:.{max(0, digits)}f}"
