"""Shares the time of the prober's event loop."""

from __future__ import annotations

import asyncio
import time

from triton_operator.probe.turns import Turns


def delays(taken: dict[str, float], now: float = 100.5) -> dict[str, float]:
    """Returns how long each namespace waits after it has taken this CPU time since second 100."""
    turns = Turns()
    assert turns.delay("", 100.0) == 0
    for namespace, seconds in taken.items():
        turns.take(namespace, seconds)
    return {namespace: turns.delay(namespace, now) for namespace in (*taken, "new")}


def test_one_namespace_may_take_all_the_time() -> None:
    assert delays({"a": 0.99}) == {"a": 0, "new": 0}


def test_a_namespace_that_takes_more_than_its_share_waits_when_the_time_is_used_up() -> None:
    assert delays({"a": 1.1, "b": 0.01}) == {"a": 1.5, "b": 0, "new": 0}
    assert delays({"a": 0.7, "b": 0.6, "c": 0.1}) == {"a": 1.5, "b": 1.5, "c": 0, "new": 0}


def test_in_the_next_two_seconds_it_may_compute_again() -> None:
    assert delays({"a": 10.0}, 102.0) == {"a": 0, "new": 0}


def test_only_the_cpu_time_of_the_context_counts() -> None:
    turns = Turns()
    turns.delay("a", 100.0)
    with turns.taking("a"):
        time.sleep(1.1)
    assert turns.delay("a", 100.0) == 0
    with turns.taking("a"):
        end = time.thread_time() + 1.1
        while time.thread_time() < end:
            pass
    assert turns.delay("a", 100.0) == 2


def test_waits_until_the_window_is_over() -> None:
    async def main() -> float:
        turns, loop = Turns(), asyncio.get_running_loop()
        began = loop.time()
        await turns.wait("a")
        turns.take("a", 5.0)
        await turns.wait("b")
        assert loop.time() - began < 2
        await turns.wait("a")
        return loop.time() - began

    assert asyncio.run(main()) >= 2
