"""The workers: they take keys from the queue and have each looked at by a pass."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from triton_operator.cluster.api import ApiError
from triton_operator.reconcile import Result

from .metrics import Metrics
from .queue import WorkQueue

_log = logging.getLogger(__name__)
_REFUSED_SECONDS = (2.0, 5.0)
"""Between two tries for want of rights: at least, and at most."""


class Workers:
    """So many passes at a time, each in a thread. For one event loop, like the queue.

    `permissions_restored` is called when a pass gets through that was refused before: the operator's rights are back.
    """

    def __init__(
        self, count: int, queue: WorkQueue, metrics: Metrics, permissions_restored: Callable[[], None] = lambda: None
    ) -> None:
        self._queue, self._metrics, self._on_permissions_restored = queue, metrics, permissions_restored
        self._refused: dict[str, None] = {}
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="reconcile")
        self._busy_since: dict[str, float] = {}

    async def work(self, reconcile: Callable[[str], Result]) -> None:
        """One worker, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            key = await self._queue.take()
            started = self._busy_since[key] = time.monotonic()
            result = None
            try:
                result = await loop.run_in_executor(self._pool, self._pass, reconcile, key)
                self._after(key, result)
            finally:
                self._metrics.seconds.observe(time.monotonic() - started)
                self._busy_since.pop(key, None)
                self._queue.done(key, result.written if result else ())

    async def retry_refused(self) -> None:
        """Tries one key that was refused for want of rights every few seconds, for ever. The backoff of each key grows
        to a minute; when the first gets through, all others follow. So thousands don't ask the API server all the time,
        and none waits for long once the rights are back."""
        while True:
            await asyncio.sleep(random.uniform(*_REFUSED_SECONDS))  # noqa: S311
            if self._refused:
                key = next(iter(self._refused))
                self._refused[key] = self._refused.pop(key)  # the next time it is another's turn
                self._queue.add(key)

    async def drain(self, seconds: float, over: Callable[[], bool] = lambda: False) -> None:
        """Lets the passes that have begun come to their end, within so many seconds, or until it is `over`."""
        deadline = time.monotonic() + seconds
        while not self._queue.idle and not over() and time.monotonic() < deadline:
            await asyncio.sleep(0.05)

    def close(self) -> None:
        """Waits for no pass."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def busy_seconds(self) -> float:
        """For how long the longest pass has been running; 0 where there is none."""
        return max((time.monotonic() - since for since in self._busy_since.values()), default=0.0)

    def _pass(self, reconcile: Callable[[str], Result], key: str) -> Result | None:
        """One pass, in a worker's thread; None where it has to be tried again. One resource never stops another,
        so whatever goes wrong with it ends here."""
        try:
            result = reconcile(key)
        except ApiError as error:
            self._metrics.reconciles.labels("retry").inc()
            _log.warning("%s; trying again", error.message, extra={"key": key})
            if error.code == 403:
                return Result(requeue=True, forbidden=True)
        except Exception:
            self._metrics.reconciles.labels("error").inc()
            _log.exception("the pass failed; trying again", extra={"key": key})
        else:
            self._metrics.reconciles.labels("ok").inc()
            return result
        return None

    def _after(self, key: str, result: Result | None) -> None:
        if result is not None:
            self._note_refusal(key, forbidden=result.forbidden)
        if result is None or result.requeue:
            self._queue.add_rate_limited(key)
        else:
            self._queue.forget(key)
        if result is not None and result.requeue_after is not None:
            self._queue.add_after(key, result.requeue_after)

    def _note_refusal(self, key: str, *, forbidden: bool) -> None:
        if forbidden:
            self._refused.setdefault(key)
        elif key in self._refused:
            refused, self._refused = self._refused, {}
            for other in refused:
                self._queue.forget(other)
                if other != key:
                    self._queue.add(other)
            self._on_permissions_restored()
