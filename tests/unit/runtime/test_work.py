"""The workers: failed and hanging reconciles are retried and don't affect other TritonModels."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest
from prometheus_client import CollectorRegistry

from triton_operator.cluster.errors import ApiError
from triton_operator.reconcile import Result
from triton_operator.runtime import work
from triton_operator.runtime.metrics import Metrics
from triton_operator.runtime.queue import WorkQueue
from triton_operator.runtime.work import Workers


@contextlib.asynccontextmanager
async def running_workers(workers: Workers, count: int, reconcile: Callable[[str], Result]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(workers.work(reconcile)) for _ in range(count)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        workers.close()


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


def test_retries_a_failed_reconcile_without_stopping_others() -> None:
    registry, reconciled = CollectorRegistry(), list[str]()

    def reconcile(key: str) -> Result:
        reconciled.append(key)
        first = reconciled.count(key) == 1
        if key == "refused" and first:
            raise ApiError(0, "NoAnswer", "no answer")
        if key == "broken" and first:
            raise RuntimeError("a bug")
        if key == "reported" and first:
            return Result(requeue=True, failed=True)
        return Result(requeue=key == "starting" and first, requeue_after=0.01 if key == "open" and first else None)

    async def main() -> None:
        metrics = Metrics(registry)
        queue = WorkQueue(8, base=0.01)
        for key in ("refused", "broken", "reported", "starting", "open", "fine"):
            queue.add(key)
        async with running_workers(Workers(1, queue, metrics), 1, reconcile):
            await wait_until(lambda: len(reconciled) == 11 and queue.idle)

    asyncio.run(main())
    twice = ("broken", "open", "refused", "reported", "starting")
    assert sorted(reconciled) == sorted([*twice, *twice, "fine"])
    results = ("ok", "retry", "error")
    name = "triton_operator_reconciles_total"
    assert [registry.get_sample_value(name, {"result": r}) for r in results] == [8, 1, 2]


def test_waits_as_long_as_a_busy_api_server_asks() -> None:
    times = list[float]()

    def reconcile(key: str) -> Result:
        times.append(time.monotonic())
        if len(times) == 1:
            raise ApiError(429, "TooManyRequests", "busy", 0.5)
        return Result()

    async def main() -> None:
        queue = WorkQueue(8, base=0.01)
        queue.add("a")
        async with running_workers(Workers(1, queue, Metrics(CollectorRegistry())), 1, reconcile):
            await wait_until(lambda: len(times) == 2)

    asyncio.run(main())
    assert times[1] - times[0] >= 0.5


@pytest.mark.parametrize("reported_by", ["error", "result"])
def test_retries_forbidden_reconciles_within_seconds_after_permissions_return(
    reported_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers retry one key at a time, to limit the requests. When one succeeds, they retry two others at once."""
    monkeypatch.setattr(work, "_REFUSED_SECONDS", (0.02, 0.05))
    allowed, reconciled, successes = threading.Event(), list[str](), list[str]()
    permissions_restored = list[float]()

    def reconcile(key: str) -> Result:
        reconciled.append(key)
        if not allowed.is_set():
            if reported_by == "error":
                raise ApiError(403, "Forbidden", "forbidden")
            return Result(requeue=True, outside_cause=True)
        successes.append(key)
        return Result(written=frozenset({f"uid-of-{key} 2"}))

    async def main() -> None:
        queue = WorkQueue(8, base=300, cap=300)
        keys = [f"ns/{number}" for number in range(50)]
        for key in keys:
            queue.add(key)
        workers = Workers(
            2, queue, Metrics(CollectorRegistry()), permissions_restored=lambda: permissions_restored.append(1)
        )
        async with running_workers(workers, 2, reconcile):
            await wait_until(lambda: len(reconciled) == 50 and queue.idle)
            retries = asyncio.create_task(workers.retry_refused())
            began = time.monotonic()
            await wait_until(lambda: len(reconciled) > 50 + 5)
            assert len(reconciled) - 50 <= 1 + (time.monotonic() - began) / 0.02
            assert len(set(reconciled[50:])) == len(reconciled[50:]), "a key was retried twice"
            allowed.set()
            await wait_until(lambda: set(successes) == set(keys))
            assert len(successes) == 50
            settled = len(reconciled)
            await asyncio.sleep(0.3)
            assert len(reconciled) == settled, "retries continue after the permissions returned"
        retries.cancel()

    asyncio.run(main())
    assert permissions_restored == [1]


OUTCOMES = {
    "deleted": (Result(), 0), "deleted, with leftovers": (Result(requeue_after=300), 0),
    "no longer needs it": (Result(), 0), "spec can't be read": (Result(requeue=True), 0),
    "one more fits into the quota": (Result(written=frozenset({"uid 2"})), 2),
}  # fmt: skip


@pytest.mark.parametrize(("outcome", "retries"), OUTCOMES.values(), ids=OUTCOMES.keys())
def test_retries_few_refused_keys_while_the_api_server_refuses_them(outcome: Result, retries: int) -> None:
    """Of 500 TritonModels above a quota one is no longer refused."""
    changed, reconciled, restored = threading.Event(), list[str](), list[int]()

    def reconcile(key: str) -> Result:
        reconciled.append(key)
        return outcome if changed.is_set() and key == "ns/7" else Result(requeue=True, outside_cause=True)

    async def main() -> None:
        queue = WorkQueue(8, base=300, cap=300)
        for number in range(500):
            queue.add(f"ns/{number}")
        workers = Workers(4, queue, Metrics(CollectorRegistry()), lambda: restored.append(1))
        async with running_workers(workers, 4, reconcile):
            await wait_until(lambda: len(reconciled) == 500 and queue.idle)
            changed.set()
            queue.add("ns/7")
            await wait_until(lambda: len(reconciled) == 501 + retries and queue.idle and not len(queue))
            # Whatever is retried is in the queue by now, behind this key.
            queue.add("ns/8")
            await wait_until(lambda: reconciled[-1] == "ns/8" and queue.idle)
        assert len(reconciled) == 502 + retries

    asyncio.run(main())
    assert len(restored) == bool(retries)


def test_measures_a_hanging_reconcile_while_others_continue() -> None:
    release, order = threading.Event(), list[str]()

    def reconcile(key: str) -> Result:
        if key == "hangs":
            release.wait(30)
        order.append(key)
        return Result()

    async def main() -> None:
        queue = WorkQueue(8)
        workers = Workers(2, queue, Metrics(CollectorRegistry()))
        assert workers.busy_seconds == 0
        async with running_workers(workers, 2, reconcile):
            queue.add("hangs")
            queue.add("fine")
            await wait_until(lambda: order == ["fine"] and workers.busy_seconds > 0.05)
            await workers.drain(0.05)
            assert not queue.idle
            release.set()
            await workers.drain(30)
            assert (order, queue.idle, workers.busy_seconds) == (["fine", "hangs"], True, 0)

    asyncio.run(main())
