"""Limits the number of servers that are polled at the same time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from triton_operator.fairness import FairQueue

from .turns import Turns

FAST, SLOW = 64, 32
FAST_PER_MODEL = 8
"""Maximum number of servers of one TritonModel in the fast lane."""


class Lanes:
    """A fast lane for servers that are expected to answer, and a slow lane for the others.

    In each lane the namespaces take turns. For one event loop.
    """

    def __init__(self, turns: Turns) -> None:
        self._fast, self._slow = Lane(FAST, turns), Lane(SLOW, turns)
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
    """A number of places, which the namespaces share. For one event loop.

    `turns`: when a namespace may have one.
    """

    def __init__(self, places: int, turns: Turns) -> None:
        self._turns = turns
        self._queue = FairQueue[str, tuple[str, asyncio.Future[None]]](places)

    @contextlib.asynccontextmanager
    async def place(self, namespace: str) -> AsyncIterator[None]:
        """Waits for a place, and holds it until the context ends."""
        await self._turns.wait(namespace)
        admission = asyncio.get_running_loop().create_future()
        self._queue.put(namespace, (namespace, admission))
        self._admit()
        try:
            await admission
            yield
        finally:
            # A wait that is cancelled before it is admitted has no place. It stays in the queue until its turn.
            if not admission.cancelled():
                self._leave(namespace)

    def _leave(self, namespace: str) -> None:
        self._queue.leave(namespace)
        self._admit()

    def _admit(self) -> None:
        while (entry := self._queue.take()) is not None:
            namespace, admission = entry
            if admission.cancelled():
                self._queue.leave(namespace)
            else:
                admission.set_result(None)
