"""The workers: what becomes of a pass that fails or hangs, and of the others."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable

import pytest
from prometheus_client import CollectorRegistry

from triton_operator.cluster.api import ApiError
from triton_operator.reconcile import Result
from triton_operator.runtime import work
from triton_operator.runtime.metrics import Metrics
from triton_operator.runtime.queue import WorkQueue
from triton_operator.runtime.work import Workers


@contextlib.asynccontextmanager
async def working(workers: Workers, count: int, reconcile: Callable[[str], Result]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(workers.work(reconcile)) for _ in range(count)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        workers.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.005)


def test_a_pass_that_fails_is_tried_again_and_stops_no_other() -> None:
    registry, tried = CollectorRegistry(), list[str]()

    def reconcile(key: str) -> Result:
        tried.append(key)
        first = tried.count(key) == 1
        if key == "refused" and first:
            raise ApiError(0, "NoAnswer", "no answer")
        if key == "broken" and first:
            raise RuntimeError("a fault of ours")
        return Result(requeue=key == "starting" and first, requeue_after=0.01 if key == "open" and first else None)

    async def main() -> None:
        metrics = Metrics(registry)
        queue = WorkQueue(8, base=0.01)
        for key in ("refused", "broken", "starting", "open", "fine"):
            queue.add(key)
        async with working(Workers(1, queue, metrics), 1, reconcile):
            await until(lambda: len(tried) == 9 and queue.idle)

    asyncio.run(main())
    assert sorted(tried) == ["broken"] * 2 + ["fine"] + ["open"] * 2 + ["refused"] * 2 + ["starting"] * 2
    results = ("ok", "retry", "error")
    name = "triton_operator_reconciles_total"
    assert [registry.get_sample_value(name, {"result": r}) for r in results] == [7, 1, 1]


@pytest.mark.parametrize("told", ["by an error", "in the outcome"])
def test_what_was_refused_for_want_of_rights_is_done_within_seconds_of_their_return(
    told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one key at a time, so that thousands don't ask all the time; the others follow once one gets through."""
    monkeypatch.setattr(work, "_REFUSED_SECONDS", (0.02, 0.05))
    allowed, tried, done = threading.Event(), list[str](), list[str]()
    permissions_restored = list[float]()

    def reconcile(key: str) -> Result:
        tried.append(key)
        if not allowed.is_set():
            if told == "by an error":
                raise ApiError(403, "Forbidden", "may not")
            return Result(requeue=True, forbidden=True)
        done.append(key)
        return Result()

    async def main() -> None:
        queue = WorkQueue(8, base=300, cap=300)
        keys = [f"ns/{number}" for number in range(50)]
        for key in keys:
            queue.add(key)
        workers = Workers(
            2, queue, Metrics(CollectorRegistry()), permissions_restored=lambda: permissions_restored.append(1)
        )
        async with working(workers, 2, reconcile):
            await until(lambda: len(tried) == 50 and queue.idle)
            retries = asyncio.create_task(workers.retry_refused())
            await asyncio.sleep(0.5)
            assert 50 + 5 < len(tried) < 50 + 30
            assert len(set(tried[50:])) == len(tried[50:]), "one after the other"
            allowed.set()
            await until(lambda: set(done) == set(keys))
            assert len(done) == 50
            settled = len(tried)
            await asyncio.sleep(0.3)
            assert len(tried) == settled, "nothing is refused any more"
        retries.cancel()

    asyncio.run(main())
    assert permissions_restored == [1]


def test_how_long_a_pass_hangs_is_known_and_others_go_on_meanwhile() -> None:
    free, done = threading.Event(), list[str]()

    def reconcile(key: str) -> Result:
        if key == "hangs":
            free.wait(30)
        done.append(key)
        return Result()

    async def main() -> None:
        queue = WorkQueue(8)
        workers = Workers(2, queue, Metrics(CollectorRegistry()))
        assert workers.busy_seconds == 0
        async with working(workers, 2, reconcile):
            queue.add("hangs")
            queue.add("fine")
            await until(lambda: done == ["fine"] and workers.busy_seconds > 0.05)
            await workers.drain(0.05)
            assert not queue.idle
            free.set()
            await workers.drain(30)
            assert (done, queue.idle, workers.busy_seconds) == (["fine", "hangs"], True, 0)

    asyncio.run(main())
