"""Decides when a server or a Prometheus is polled again."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import random
from collections.abc import Hashable
from typing import Generic, TypeVar

from .triton import IndexAnswer

K = TypeVar("K", bound=Hashable)
_FIRST_SECONDS = 0.5
_LOADING_SECONDS = 10.0
_SILENT_SECONDS = 60.0


class Schedule(Generic[K]):
    """Keys with the time at which each is due. Each key has one time. Not thread-safe."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
        self._entries: dict[K, int] = {}
        self._numbers = itertools.count()

    def put(self, key: K, when: float) -> None:
        """Makes `key` due at `when` (seconds of any clock). Replaces an earlier time of the key."""
        number = self._entries[key] = next(self._numbers)
        heapq.heappush(self._heap, (when, number, key))

    def due(self, now: float) -> list[K]:
        """Removes and returns the keys that are due, the earliest first."""
        keys = []
        while self._heap and (self._heap[0][0] <= now or not self._valid()):
            _, number, key = heapq.heappop(self._heap)
            if self._entries.get(key) == number:
                del self._entries[key]
                keys.append(key)
        return keys

    def next(self) -> float | None:
        """Returns the time at which the next key is due; None if there are no keys."""
        while self._heap and not self._valid():
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _valid(self) -> bool:
        _, number, key = self._heap[0]
        return self._entries.get(key) == number


def server_delay(answer: IndexAnswer | None, repeats: int, rest_seconds: float) -> float:
    """Returns the seconds until a server is polled again: `rest_seconds` if all its models are ready.

    - `answer`: the last answer; None if it wasn't usable.
    - `repeats`: number of polls in a row in which not all models were ready.
    """
    if answer is not None and answer.all_ready:
        return jittered(rest_seconds)
    longest = _SILENT_SECONDS if answer is None else _LOADING_SECONDS
    return jittered(min(longest, _FIRST_SECONDS * 2.0 ** min(repeats, 16)))


def unready_delay(seconds: float) -> float:
    """Returns the same for a server that may be evicted, because its readiness probe fails. `seconds`: without that."""
    return min(seconds, jittered(_LOADING_SECONDS))


def jittered(seconds: float) -> float:
    """Returns `seconds` ± 10 %, so that a thousand servers aren't polled at the same moment."""
    return seconds * random.uniform(0.9, 1.1)  # noqa: S311


async def wait(woken: asyncio.Event, until: float | None) -> None:
    """Returns when `woken` is set, or at `until` (the event loop's clock)."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            await woken.wait()
