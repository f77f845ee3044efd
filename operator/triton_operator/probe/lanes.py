"""Limits the number of servers that are polled at the same time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from triton_operator.fairness import FairQueue

FAST, SLOW = 64, 32
FAST_PER_MODEL = 8
"""Maximum number of servers of one TritonModel in the fast lane."""


class Lanes:
    """A fast lane for servers that are expected to answer, and a slow lane for the others.

    In each lane the namespaces take turns. For one event loop.
    """

    def __init__(self) -> None:
        self._fast, self._slow = Lane(FAST), Lane(SLOW)
        self._per_model = Counter[str]()

    @contextlib.asynccontextmanager
    async def place(self, key: str, *, slow: bool) -> AsyncIterator[None]:
        """Waits for a place for a server of the TritonModel `key`, and holds it until the context ends."""
        lane = self._slow if slow or self._per_model[key] >= FAST_PER_MODEL else self._fast
        self._per_model[key] += 1
        try:
            async with lane.place(key.partition("/")[0]):
                yield
        finally:
            self._per_model[key] -= 1
            if not self._per_model[key]:
                del self._per_model[key]


class Lane:
    """A number of places, which the namespaces share. For one event loop."""

    def __init__(self, places: int) -> None:
        self._queue = FairQueue[str, asyncio.Future[None]](places)

    @contextlib.asynccontextmanager
    async def place(self, namespace: str) -> AsyncIterator[None]:
        """Waits for a place, and holds it until the context ends."""
        admitted = asyncio.get_running_loop().create_future()
        self._queue.put(namespace, admitted)
        self._admit()
        # A cancelled wait keeps its place in the queue. The prober cancels all waits at once, and creates new lanes.
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
