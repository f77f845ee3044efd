"""Shares the time of the prober's event loop between namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

from triton_operator.shares import Shares

_WINDOW_SECONDS = 2.0
_SECONDS = 1.0
"""CPU time for the answers of servers in each window. Until it is used up, a namespace may take any part of it."""
_UNIT = 1e-6


class Turns:
    """Says when a namespace may read the next answer, since the answers of some servers may take long to parse.

    For one event loop.
    """

    def __init__(self) -> None:
        self._taken, self._until = Shares(0), 0.0

    @contextlib.contextmanager
    def taking(self, namespace: str) -> Iterator[None]:
        """Counts the CPU time of this context. Nothing else may run in it."""
        began = time.thread_time()
        try:
            yield
        finally:
            self.take(namespace, time.thread_time() - began)

    def take(self, namespace: str, seconds: float) -> None:
        """Counts CPU time of a namespace."""
        self._taken.take(namespace, round(seconds / _UNIT))

    def delay(self, namespace: str, now: float) -> float:
        """Returns 0 if this namespace may compute, or the seconds until it may. `now`: of a monotonic clock."""
        if now >= self._until:
            self._taken, self._until = Shares(round(_SECONDS / _UNIT)), now + _WINDOW_SECONDS
        return 0.0 if self._taken.may_take(namespace, 0) else self._until - now

    async def wait(self, namespace: str) -> None:
        """Returns when this namespace may compute."""
        while delay := self.delay(namespace, asyncio.get_running_loop().time()):
            await asyncio.sleep(delay)
