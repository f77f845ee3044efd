"""Growth of a server's memory: leaks are found before the limit, and what else grows isn't taken for one."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from process_exporter.growth import Growth
from support.memory_use import HONEST, HOUR, LEAKS, LIMIT, Use, filled, looks


@dataclass
class Life:
    """What was said in a server's life. `said`: each change, with its time; both in hours."""

    ended: float = 0.0
    killed: bool = False
    said: list[tuple[float, float | None]] = field(default_factory=list)


def live(use: Use, hours: float) -> Life:
    """Returns the life of a server until it is killed, or for some hours."""
    life = Life()
    for at, used, full in looks(use, hours):
        life.ended = at / HOUR
        if used >= LIMIT:
            life.killed = True
            return life
        full = None if full is None else full / HOUR
        if full != (life.said[-1][1] if life.said else None):
            life.said.append((at / HOUR, full))
    return life


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
