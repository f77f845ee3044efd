"""Simulated memory of servers: leaks, and what grows and is no leak.

All in MiB of a container with 1,024, of which a server uses 300 when it has loaded its models.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from process_exporter.growth import Growth

LIMIT, BASE = 1024.0, 300.0
ROOM = LIMIT - BASE
HOUR = 3600.0
Use = Callable[[float, random.Random], float]
"""Returns the memory above BASE at a time in seconds."""


class Look(NamedTuple):
    """A look at a server's memory. `at`, `full`: when, and when it will reach the limit, in seconds of its life."""

    at: float
    used: float
    full: float | None


def looks(use: Use, hours: float, seed: int = 1, noise: float = 5.0) -> Iterator[Look]:
    """Yields the looks at a server until it is killed, or for some hours, about 15 seconds apart."""
    growth, dice, at = Growth(), random.Random(seed), 0.0
    while at < hours * HOUR:
        used = BASE + use(at, dice) + dice.gauss(0, noise)
        if used >= LIMIT:
            yield Look(at, used, None)
            return
        yield Look(at, used, growth.add(at, used * 2**20, LIMIT * 2**20))
        at += 15 + dice.uniform(-2, 2)


def leak(per_hour: float) -> Use:
    return lambda at, _: per_hour * at / HOUR


def warm(size: float, hours: float, per_hour: float = 0) -> Use:
    """Grows to `size` ever slower, and leaks."""
    return lambda at, _: size * (1 - math.exp(-at / HOUR / hours)) + per_hour * at / HOUR


def filled(size: float, hours: float) -> Use:
    """Grows evenly to `size`, and no further: a cache."""
    return lambda at, _: min(size, size * at / HOUR / hours)


def by_day(size: float, start: float = -math.pi / 2) -> Use:
    return lambda at, _: size / 2 * (1 + math.sin(2 * math.pi * at / 24 / HOUR + start))


def of_requests(size: float, use: Use) -> Use:
    """Requests take up to `size` for a moment, in addition to `use`."""
    return lambda at, dice: use(at, dice) + size * dice.random()


def at_day(per_hour: float) -> Use:
    """A leak that nearly pauses at night, when there are no requests."""
    return lambda at, _: per_hour * (at / HOUR - 0.9 * 24 / 2 / math.pi * math.sin(2 * math.pi * at / 24 / HOUR))


def after(hours: float, use: Use) -> Use:
    return lambda at, dice: use(max(0.0, at - hours * HOUR), dice)


def largest_so_far(median: float) -> Use:
    """The arena of an allocator that keeps what the largest request has needed."""
    most = 0.0

    def use(_: float, dice: random.Random) -> float:
        nonlocal most
        most = max(most, min(ROOM * 0.9, dice.lognormvariate(math.log(median), 0.7)))
        return most

    return use


def in_steps(number: int, size: float, seconds: float) -> Use:
    return lambda at, _: size * min(number, at // seconds)


LEAKS = {
    "10 GiB an hour": leak(10240),
    "3 GiB an hour": leak(3072),
    "700 MiB an hour": leak(700),
    "100 MiB an hour": leak(100),
    "20 MiB an hour": leak(20),
    "while it warms up": warm(150, 0.2, 100),
    "beside requests": of_requests(200, leak(100)),
    "by day": at_day(30),
    "after two days": after(48, leak(60)),
    "beside load by day": lambda at, dice: by_day(150)(at, dice) + leak(20)(at, dice),
}


HONEST = {
    "rest": leak(0),
    "warm-up to 70 %": warm(500, 0.5),
    "warm-up to 90 %": warm(650, 0.5),
    "slow warm-up to 90 %": warm(650, 8),
    "a cache of 60 %, in half an hour": filled(430, 0.5),
    "a cache of 60 %, in six hours": filled(430, 6),
    "days, from the night on": by_day(400),
    "days, from the morning on": by_day(500, 0),
    "requests": of_requests(600, leak(0)),
    "the largest request so far": largest_so_far(60),
    "one model more": in_steps(1, 400, 3 * HOUR),
    "a slow leak of less than a tenth": leak(2),
}
