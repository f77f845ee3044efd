"""The level-triggered work queue: keys to reconcile. A key is never given to two workers at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from triton_operator.fairness import FairQueue, TokenBuckets

BURST, INTERVAL = 20, 0.5
"""Rate limit of one key: it can be taken BURST times in a row, and then once every INTERVAL seconds."""


class WorkQueue:
    """A queue that contains each key at most once, like client-go's work queue.

    - Namespaces share the `workers` and their CPU time fairly (`FairQueue`).
    - A token bucket limits how often a key can be taken.
    - A key that is added while a worker has it returns to the queue when the worker is done.
    - `waited(seconds)` is called when a key is taken, with the seconds since it was due.

    For one event loop; not thread-safe.
    """

    def __init__(
        self,
        workers: int,
        *,
        base: float = 0.5,
        cap: float = 60.0,
        waited: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._base, self._cap, self._waited = base, cap, waited
        self._due = FairQueue[str, str](workers)
        self._changed = asyncio.Event()
        self._buckets = TokenBuckets[str](BURST, INTERVAL)
        self._since: dict[str, float] = {}
        self._working: set[str] = set()
        self._dirty: dict[str, set[str]] = {}
        self._later: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._since)

    def add(self, key: str, version: str = "") -> None:
        """Makes `key` due now, or as soon as it has a token.

        `version`: the version of the object whose event caused this, for `done`.
        """
        if self._closed:
            return
        now = asyncio.get_running_loop().time()
        if key in self._working:
            self._dirty.setdefault(key, set()).add(version)
        elif key in self._since:
            return
        elif pause := self._buckets.wait(key, now):
            self.add_after(key, pause)
        else:
            self._since[key] = now
            self._due.put(_namespace(key), key)
            self._changed.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Makes `key` due in `seconds`. An earlier time from a previous call stays."""
        loop = asyncio.get_running_loop()
        handle = self._later.get(key)
        if handle is not None:
            if handle.when() <= loop.time() + seconds:
                return
            handle.cancel()
        self._later[key] = loop.call_later(seconds, self._add_delayed, key)

    def add_rate_limited(self, key: str, at_least: float = 0.0) -> None:
        """Makes `key` due after a delay that doubles with each call until `forget`, and is `at_least` so long."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_after(key, min(self._cap, max(at_least, self._base * 2.0 ** min(failures, 16))))

    def forget(self, key: str) -> None:
        """Resets the backoff of `key`."""
        self._failures.pop(key, None)

    async def take(self) -> str:
        """Waits for the next key and returns it. The caller must call `done` for it."""
        while (key := self._due.take()) is None:
            self._changed.clear()
            await self._changed.wait()
        now = asyncio.get_running_loop().time()
        self._waited(now - self._since.pop(key))
        self._buckets.spend(key, now)
        self._working.add(key)
        return key

    def done(self, key: str, written: Collection[str] = (), seconds: float = 0.0) -> None:
        """Marks the work on `key` as done.

        `written`: versions of the objects that the worker wrote itself. Their events don't bring the key back.
        `seconds`: the CPU time that the work took.
        """
        self._working.discard(key)
        self._due.leave(_namespace(key), seconds)
        self._changed.set()
        if self._dirty.pop(key, set()).difference(written):
            self.add(key)

    def close(self) -> None:
        """Accepts no more keys. Running work continues."""
        self._closed = True
        for handle in self._later.values():
            handle.cancel()

    @property
    def idle(self) -> bool:
        """Returns whether no worker has a key."""
        return not self._working

    def _add_delayed(self, key: str) -> None:
        self._later.pop(key, None)
        self.add(key)


def _namespace(key: str) -> str:
    return key.partition("/")[0]
