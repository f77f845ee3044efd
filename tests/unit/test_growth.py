"""Growth of a server's memory: leaks are found before the limit, and what else grows isn't taken for one.

All in MiB of a container with 1,024, of which a server uses 300 when it has loaded its models.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from process_exporter.growth import Growth

LIMIT, BASE = 1024.0, 300.0
ROOM = LIMIT - BASE
HOUR = 3600.0
Use = Callable[[float, random.Random], float]
"""Returns the memory above BASE at a time in seconds."""


@dataclass
class Life:
    """What was said in a server's life. `said`: each change, with its time; both in hours."""

    ended: float = 0.0
    killed: bool = False
    said: list[tuple[float, float | None]] = field(default_factory=list)


def live(use: Use, hours: float, seed: int = 1, noise: float = 5.0) -> Life:
    """Returns the life of a server until it is killed, or for some hours. Looks are about 15 seconds apart."""
    growth, life, dice, at = Growth(), Life(), random.Random(seed), 0.0
    while at < hours * HOUR:
        used = BASE + use(at, dice) + dice.gauss(0, noise)
        life.ended = at / HOUR
        if used >= LIMIT:
            life.killed = True
            return life
        full = growth.add(at, used * 2**20, LIMIT * 2**20)
        full = None if full is None else full / HOUR
        if full != (life.said[-1][1] if life.said else None):
            life.said.append((at / HOUR, full))
        at += 15 + dice.uniform(-2, 2)
    return life


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


@pytest.mark.parametrize("use", LEAKS.values(), ids=LEAKS.keys())
def test_a_leak_is_found_before_the_limit(use: Use) -> None:
    life = live(use, 80)
    assert life.killed
    times = [(at, full) for at, full in life.said if full]
    assert times, life
    first_at, first_full = times[0]
    lasts = life.ended - (48 if use is LEAKS["after two days"] else 0)
    assert life.ended - first_at > 0.08 * lasts
    assert abs(first_full - life.ended) < 0.2 * lasts
    assert life.said[-1][1], "it is still said at the end"
    assert len(life.said) < 30, "the status is written with each"


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


@pytest.mark.parametrize("use", HONEST.values(), ids=HONEST.keys())
def test_what_stops_below_the_limit_is_no_leak(use: Use) -> None:
    life = live(use, 24 if "day" not in next(n for n, u in HONEST.items() if u is use) else 60)
    assert not life.killed
    assert life.said == []


@pytest.mark.parametrize("hours", [0.5, 4])
def test_growth_that_stops_is_no_leak_any_more(hours: float) -> None:
    life = live(filled(600, hours), 2 * hours)
    (_, *_, (ended, full)) = life.said
    assert full is None
    assert ended < 1.4 * hours
    assert len(life.said) < 8


def test_memory_that_is_freed_is_no_leak_any_more() -> None:
    """A process of a model has ended."""
    life = live(lambda at, _: 600 * at / HOUR if at < HOUR else 0, 1.2)
    at, full = life.said[-1]
    assert full is None
    assert at < 1.01


def test_looks_may_be_missing() -> None:
    growth = Growth()
    said = {growth.add(at, (300 + at / 10) * 2**20, 2**30) for at in range(0, 7000, 600)}
    assert None in said
    # In windows whose parts have no look each, nothing is found.
    assert any(time and 7000 < time < 7400 for time in said)


@pytest.mark.parametrize(("used", "limit"), [(0, 0), (5, 0), (0, 2**59), (2**62, 2**59), (2**30, 1)])
def test_any_numbers_are_allowed(used: float, limit: float) -> None:
    growth = Growth()
    for number in range(200):
        growth.add(number * 15.0, used, limit)
        growth.add(number * 15.0, used * number, limit)
