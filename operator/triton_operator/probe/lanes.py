"""How many servers are asked at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from triton_operator.fairness import FairQueue

FAST, SLOW = 64, 32
FAST_OF_ONE = 8
"""Of one TritonModel, in the fast lane."""


class Lanes:
    """A fast lane for servers that are expected to answer, and a slow one for the others. In each lane the namespaces
    take turns. For one event loop."""

    def __init__(self) -> None:
        self._fast, self._slow = _Lane(FAST), _Lane(SLOW)
        self._of_one = Counter[str]()

    @contextlib.asynccontextmanager
    async def place(self, key: str, *, slow: bool) -> AsyncIterator[None]:
        """A place for a server of the TritonModel `key`, as long as the context lasts."""
        lane = self._slow if slow or self._of_one[key] >= FAST_OF_ONE else self._fast
        self._of_one[key] += 1
        try:
            async with lane.place(key.partition("/")[0]):
                yield
        finally:
            self._of_one[key] -= 1
            if not self._of_one[key]:
                del self._of_one[key]


class _Lane:
    def __init__(self, places: int) -> None:
        self._queue = FairQueue[str, asyncio.Future[None]](places)

    @contextlib.asynccontextmanager
    async def place(self, namespace: str) -> AsyncIterator[None]:
        admitted = asyncio.get_running_loop().create_future()
        self._queue.put(namespace, admitted)
        self._admit()
        # A wait that is cancelled keeps its turn: the prober cancels all of them at once, and makes new lanes.
        await admitted
        try:
            yield
        finally:
            self._queue.leave(namespace)
            self._admit()

    def _admit(self) -> None:
        while (waiting := self._queue.take()) is not None:
            if not waiting.done():
                waiting.set_result(None)
