"""The work queue: contains each key once and never gives a key to two workers."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

import pytest

from triton_operator.runtime.queue import BURST, INTERVAL, WorkQueue


class SkippingSelector(selectors.DefaultSelector):
    """Skips the time until the next timer instead of waiting, so that delays are exact on every machine."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is the selector's."""

    def __init__(self) -> None:
        self._skipping = SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(asyncio.wait_for(main, 10))


def now() -> float:
    return asyncio.get_running_loop().time()


async def take_and_finish(queue: WorkQueue, within: float = 0.05) -> str | None:
    """Takes the next key and marks it done. Returns None if there is none within `within` seconds."""
    try:
        key = await asyncio.wait_for(queue.take(), within)
    except TimeoutError:
        return None
    queue.done(key)
    return key


def test_returns_a_key_once_even_if_it_was_added_twice() -> None:
    async def main() -> None:
        queue = WorkQueue(8)
        for key in ("a", "a", "b", "a"):
            queue.add(key)
        assert len(queue) == 2
        assert [await take_and_finish(queue) for _ in range(3)] == ["a", "b", None]

    run(main())


def test_returns_a_key_again_if_it_was_added_during_its_reconcile() -> None:
    async def main() -> None:
        queue = WorkQueue(8)
        queue.add("a")
        key = await queue.take()
        queue.add("a")
        queue.add("a")
        assert len(queue) == 0  # no other worker may take it now
        assert not queue.idle
        queue.done(key)
        assert [await take_and_finish(queue), await take_and_finish(queue)] == ["a", None]
        assert queue.idle

    run(main())


def test_ignores_events_that_the_reconcile_itself_caused() -> None:
    async def main() -> None:
        queue = WorkQueue(8)
        for events, back in ((["own"], None), (["own", "other"], "a"), (["own", ""], "a"), ([], None)):
            queue.add("a", "first")
            key = await queue.take()
            for event in events:
                queue.add("a", event)
            queue.done(key, {"own", "more of its own"})
            assert await take_and_finish(queue) == back
        assert queue.idle

    run(main())


def test_backoff_doubles_up_to_its_cap_until_forget() -> None:
    async def main() -> None:
        queue = WorkQueue(8, base=0.02, cap=0.07)

        async def delay() -> float:
            started = now()
            queue.add_rate_limited("a")
            assert await take_and_finish(queue, 1) == "a"
            return now() - started

        assert [await delay() for _ in range(4)] == pytest.approx([0.02, 0.04, 0.07, 0.07])
        queue.forget("a")
        assert await delay() == pytest.approx(0.02)

    run(main())


def test_backoff_does_not_overflow_after_2000_failures() -> None:
    async def main() -> None:
        queue = WorkQueue(8, base=0.001, cap=0.002)
        for _ in range(2000):
            queue.add_rate_limited("a")
        assert await take_and_finish(queue, 1) == "a"

    run(main())


@pytest.mark.parametrize("delays", [(0.03, 5.0), (5.0, 0.03)])
def test_earlier_of_two_delays_wins(delays: tuple[float, float]) -> None:
    async def main() -> None:
        queue = WorkQueue(8)
        for delay in delays:
            queue.add_after("a", delay)
        assert await take_and_finish(queue, 1) == "a"
        assert await take_and_finish(queue) is None

    run(main())


def test_event_is_not_delayed_by_a_scheduled_requeue() -> None:
    async def main() -> None:
        queue = WorkQueue(8)
        queue.add_after("a", 60)
        queue.add("a")
        assert await take_and_finish(queue) == "a"

    run(main())


def test_closed_queue_accepts_no_keys_and_lets_running_work_finish() -> None:
    async def main() -> None:
        queue = WorkQueue(8)
        queue.add("a")
        key = await queue.take()
        queue.add_after("b", 0.01)
        queue.close()
        queue.add("c")
        queue.add("a")
        queue.done(key)
        assert queue.idle
        assert await take_and_finish(queue) is None

    run(main())


def test_measures_the_wait_from_the_first_add() -> None:
    waits: list[float] = []

    async def main() -> None:
        queue = WorkQueue(8, waited=waits.append)
        queue.add("a")
        await asyncio.sleep(0.03)
        queue.add("a")
        await take_and_finish(queue)

    run(main())
    assert waits == [pytest.approx(0.03)]


def test_namespaces_take_turns() -> None:
    async def main() -> None:
        queue = WorkQueue(8)
        for number in range(100):
            queue.add(f"noisy/{number}")
        busy = [await queue.take() for _ in range(4)]
        assert busy == [f"noisy/{number}" for number in range(4)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.take(), 1)  # the other workers are reserved for other namespaces
        queue.add("quiet/a")
        assert await take_and_finish(queue) == "quiet/a"
        queue.done(busy[0])
        assert await take_and_finish(queue) == "noisy/4"

    run(main())


def test_wakes_a_waiting_worker_when_a_slot_is_free() -> None:
    async def main() -> None:
        queue = WorkQueue(1)
        queue.add("a/1")
        queue.add("b/1")
        first = await queue.take()
        waiting = asyncio.create_task(queue.take())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        queue.done(first)
        assert await waiting == "b/1"

    run(main())


def test_limits_the_rate_of_a_key_that_is_added_all_the_time() -> None:
    async def main() -> None:
        queue, times = WorkQueue(8), list[float]()
        while now() < 8:
            queue.add("ns/a")
            if await take_and_finish(queue, 0.01):
                times.append(now())
        assert times[:BURST] == [0.0] * BURST
        assert times[BURST:] == pytest.approx([n * INTERVAL for n in range(1, len(times) - BURST + 1)], abs=0.02)

    run(main())


def test_key_without_a_token_is_returned_later() -> None:
    async def main() -> None:
        queue = WorkQueue(8)
        for _ in range(BURST):
            queue.add("ns/a")
            assert await take_and_finish(queue) == "ns/a"
        queue.add("ns/a")
        assert len(queue) == 0
        assert await take_and_finish(queue, 2 * INTERVAL) == "ns/a"
        assert await take_and_finish(queue, 2 * INTERVAL) is None

    run(main())
