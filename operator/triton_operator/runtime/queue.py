"""The level-triggered work queue: which keys to look at, when, and never one of them twice at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from triton_operator.fairness import FairQueue, TokenBuckets

BURST, INTERVAL = 20, 0.5
"""A key is taken so many times in a row, and then every so many seconds, however often it is added."""


class WorkQueue:
    """Keys to work on, each at most once however often it is added, as client-go's work queue does it.

    The `workers` are shared fairly between namespaces (`FairQueue`), and a key that is added all the time is taken
    no more often than its token bucket allows. A key that is added while it is worked on comes back once that is done.
    For one event loop; not thread-safe. `waited(seconds)` is told how long a key was due before it was taken.
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
        self._news = asyncio.Event()
        self._buckets = TokenBuckets[str](BURST, INTERVAL)
        self._since: dict[str, float] = {}
        self._working: set[str] = set()
        self._dirty: dict[str, set[str]] = {}
        self._later: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._since)

    def add(self, key: str, news: str = "") -> None:
        """Makes `key` due now, or as soon as it has a token. `news`: of what it is, for `done`."""
        if self._closed:
            return
        now = asyncio.get_running_loop().time()
        if key in self._working:
            self._dirty.setdefault(key, set()).add(news)
        elif key in self._since:
            return
        elif pause := self._buckets.wait(key, now):
            self.add_after(key, pause)
        else:
            self._since[key] = now
            self._due.put(_namespace(key), key)
            self._news.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Makes `key` due in `seconds`, or earlier where that was said before."""
        loop = asyncio.get_running_loop()
        handle = self._later.get(key)
        if handle is not None:
            if handle.when() <= loop.time() + seconds:
                return
            handle.cancel()
        self._later[key] = loop.call_later(seconds, self._ripen, key)

    def add_rate_limited(self, key: str) -> None:
        """Makes `key` due after a pause that doubles each time until `forget`."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_after(key, min(self._cap, self._base * 2.0 ** min(failures, 16)))

    def forget(self, key: str) -> None:
        """Ends the backoff of `key`."""
        self._failures.pop(key, None)

    async def take(self) -> str:
        """The next key; the caller says `done` when it is through with it."""
        while (key := self._due.take()) is None:
            self._news.clear()
            await self._news.wait()
        now = asyncio.get_running_loop().time()
        self._waited(now - self._since.pop(key))
        self._buckets.spend(key, now)
        self._working.add(key)
        return key

    def done(self, key: str, known: Collection[str] = ()) -> None:
        """The work on `key` has ended. `all_keys`: news that it made itself, for which it needs not come back."""
        self._working.discard(key)
        self._due.leave(_namespace(key))
        self._news.set()
        if self._dirty.pop(key, set()).difference(known):
            self.add(key)

    def close(self) -> None:
        """Takes no more keys; those that are worked on go on."""
        self._closed = True
        for handle in self._later.values():
            handle.cancel()

    @property
    def idle(self) -> bool:
        """Whether nothing is being worked on."""
        return not self._working

    def _ripen(self, key: str) -> None:
        self._later.pop(key, None)
        self.add(key)


def _namespace(key: str) -> str:
    return key.partition("/")[0]
