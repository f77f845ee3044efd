"""Places for polls and changes of servers, which the namespaces share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest

from support.probing import until
from triton_operator.probe.lanes import Lane, Lanes
from triton_operator.probe.turns import Turns


class Visitors:
    """Tasks that wait for a place of a lane and hold it until they are cancelled."""

    def __init__(self, lane: Lane) -> None:
        self.lane, self.inside = lane, list[str]()

    def come(self, namespace: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._visit(namespace))

    async def _visit(self, namespace: str) -> None:
        async with self.lane.place(namespace):
            self.inside.append(namespace)
            try:
                await asyncio.Event().wait()
            finally:
                self.inside.remove(namespace)


def run(scene: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await scene

    asyncio.run(limited())


async def leave(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.parametrize("namespace", ["a", "b"])
def test_a_cancelled_wait_takes_no_place(namespace: str) -> None:
    async def scene() -> None:
        visitors = Visitors(Lane(1, Turns()))
        first = visitors.come("a")
        await until(lambda: visitors.inside == ["a"])
        waiting = [visitors.come(namespace) for _ in range(20)]
        await asyncio.sleep(0)
        await leave(*waiting)
        await leave(first)
        last = visitors.come("a")
        await until(lambda: visitors.inside == ["a"])
        await leave(last)

    run(scene())


def test_a_wait_that_is_cancelled_when_it_is_admitted_frees_its_place() -> None:
    async def scene() -> None:
        visitors = Visitors(Lane(1, Turns()))
        first = visitors.come("a")
        await until(lambda: visitors.inside == ["a"])
        second = visitors.come("a")
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)  # `first` leaves and admits `second`, which doesn't run yet
        assert not second.done()
        await leave(second)
        await asyncio.wait([first])
        last = visitors.come("a")
        await until(lambda: visitors.inside == ["a"])
        await leave(last)

    run(scene())


def test_lanes_have_all_places_after_many_cancelled_polls() -> None:
    async def scene() -> None:
        lanes, inside = Lanes(Turns()), set[str]()

        async def poll(key: str) -> None:
            async with lanes.place(key, slow=True):
                inside.add(key)
                with contextlib.suppress(TimeoutError):
                    await asyncio.Event().wait()

        for turn in range(3):
            tasks = [asyncio.create_task(poll(f"ns/{turn}-{n}")) for n in range(100)]
            await until(lambda turn=turn: any(key.startswith(f"ns/{turn}") for key in inside))
            await leave(*tasks)

    run(scene())
