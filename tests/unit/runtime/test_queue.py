"""The work queue: level-triggered, never one key twice at a time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

import pytest

from triton_operator.runtime.queue import BURST, INTERVAL, WorkQueue


class Skipping(selectors.DefaultSelector):
    """Waits for nothing: the time until the next timer is skipped, so that a pause is as long as it was meant to be,
    on whichever machine."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    """An event loop in the time of such a selector."""

    def __init__(self) -> None:
        self._skipping = Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


def run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(asyncio.wait_for(main, 10))


def now() -> float:
    return asyncio.get_running_loop().time()


async def taken(queue: WorkQueue, within: float = 0.05) -> str | None:
    """The next key, marked done; None where none comes in time."""
    try:
        key = await asyncio.wait_for(queue.take(), within)
    except TimeoutError:
        return None
    queue.done(key)
    return key


def test_a_key_is_due_once_however_often_it_is_added() -> None:
    async def main() -> None:
        queue = WorkQueue(8)
        for key in ("a", "a", "b", "a"):
            queue.add(key)
        assert len(queue) == 2
        assert [await taken(queue) for _ in range(3)] == ["a", "b", None]

    run(main())


def test_a_key_added_while_it_is_worked_on_comes_back_once_that_is_done() -> None:
    async def main() -> None:
        queue = WorkQueue(8)
        queue.add("a")
        key = await queue.take()
        queue.add("a")
        queue.add("a")
        assert len(queue) == 0  # nobody else may work on it now
        assert not queue.idle
        queue.done(key)
        assert [await taken(queue), await taken(queue)] == ["a", None]
        assert queue.idle

    run(main())


def test_a_key_does_not_come_back_for_news_that_its_own_work_made() -> None:
    async def main() -> None:
        queue = WorkQueue(8)
        for news, back in ((["own"], None), (["own", "other"], "a"), (["own", ""], "a"), ([], None)):
            queue.add("a", "first")
            key = await queue.take()
            for each in news:
                queue.add("a", each)
            queue.done(key, {"own", "more of its own"})
            assert await taken(queue) == back
        assert queue.idle

    run(main())


def test_backoff_doubles_to_its_cap_until_it_is_forgotten() -> None:
    async def main() -> None:
        queue = WorkQueue(8, base=0.02, cap=0.07)

        async def pause() -> float:
            started = now()
            queue.add_rate_limited("a")
            assert await taken(queue, 1) == "a"
            return now() - started

        assert [await pause() for _ in range(4)] == pytest.approx([0.02, 0.04, 0.07, 0.07])
        queue.forget("a")
        assert await pause() == pytest.approx(0.02)

    run(main())


def test_a_hundred_failures_do_not_overflow() -> None:
    async def main() -> None:
        queue = WorkQueue(8, base=0.001, cap=0.002)
        for _ in range(2000):
            queue.add_rate_limited("a")
        assert await taken(queue, 1) == "a"

    run(main())


@pytest.mark.parametrize("pauses", [(0.03, 5.0), (5.0, 0.03)])
def test_of_two_times_the_earlier_wins(pauses: tuple[float, float]) -> None:
    async def main() -> None:
        queue = WorkQueue(8)
        for pause in pauses:
            queue.add_after("a", pause)
        assert await taken(queue, 1) == "a"
        assert await taken(queue) is None

    run(main())


def test_a_later_time_does_not_hold_up_an_event() -> None:
    async def main() -> None:
        queue = WorkQueue(8)
        queue.add_after("a", 60)
        queue.add("a")
        assert await taken(queue) == "a"

    run(main())


def test_closed_it_takes_no_more_but_lets_work_end() -> None:
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
        assert await taken(queue) is None

    run(main())


def test_the_wait_is_measured_from_when_a_key_was_due() -> None:
    waits: list[float] = []

    async def main() -> None:
        queue = WorkQueue(8, waited=waits.append)
        queue.add("a")
        await asyncio.sleep(0.03)
        queue.add("a")
        await taken(queue)

    run(main())
    assert waits == [pytest.approx(0.03)]


def test_a_namespace_with_many_keys_waits_for_its_turn_like_all_others() -> None:
    async def main() -> None:
        queue = WorkQueue(8)
        for number in range(100):
            queue.add(f"noisy/{number}")
        busy = [await queue.take() for _ in range(4)]
        assert busy == [f"noisy/{number}" for number in range(4)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.take(), 1)  # the other workers are for others
        queue.add("quiet/a")
        assert await taken(queue) == "quiet/a"
        queue.done(busy[0])
        assert await taken(queue) == "noisy/4"

    run(main())


def test_a_worker_that_waits_hears_of_a_free_seat() -> None:
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


def test_a_key_that_is_added_all_the_time_is_taken_at_the_rate_of_its_bucket() -> None:
    async def main() -> None:
        queue, times = WorkQueue(8), list[float]()
        while now() < 8:
            queue.add("ns/a")
            if await taken(queue, 0.01):
                times.append(now())
        assert times[:BURST] == [0.0] * BURST
        assert times[BURST:] == pytest.approx([n * INTERVAL for n in range(1, len(times) - BURST + 1)], abs=0.02)

    run(main())


def test_a_key_without_a_token_is_not_forgotten() -> None:
    async def main() -> None:
        queue = WorkQueue(8)
        for _ in range(BURST):
            queue.add("ns/a")
            assert await taken(queue) == "ns/a"
        queue.add("ns/a")
        assert len(queue) == 0
        assert await taken(queue, 2 * INTERVAL) == "ns/a"
        assert await taken(queue, 2 * INTERVAL) is None

    run(main())
