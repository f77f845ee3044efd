"""The workers: they take keys from the work queue and reconcile them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from triton_operator.cluster.errors import ApiError
from triton_operator.reconcile import Result

from .metrics import Metrics
from .queue import WorkQueue

_log = logging.getLogger(__name__)
_REFUSED_SECONDS = (2.0, 5.0)
"""Minimum and maximum interval between retries of forbidden reconciles."""
_WOKEN = 2
"""Number of other forbidden keys that are retried when one succeeds."""


class Workers:
    """Runs up to `count` reconciles at the same time, each in a thread. For one event loop, like the queue.

    `permissions_restored` is called when the API server accepts a write of a key that was forbidden before.
    """

    def __init__(
        self, count: int, queue: WorkQueue, metrics: Metrics, permissions_restored: Callable[[], None] = lambda: None
    ) -> None:
        self._queue, self._metrics, self._on_permissions_restored = queue, metrics, permissions_restored
        self._refused: dict[str, None] = {}
        self._woken: set[str] = set()
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="reconcile")
        self._busy_since: dict[str, float] = {}
        self._retry_after: dict[str, float] = {}

    async def work(self, reconcile: Callable[[str], Result]) -> None:
        """Runs one worker until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            key = await self._queue.take()
            started = self._busy_since[key] = time.monotonic()
            result, seconds = None, 0.0
            try:
                result, seconds = await loop.run_in_executor(self._pool, self._timed, reconcile, key)
                self._after(key, result)
            finally:
                self._metrics.seconds.observe(time.monotonic() - started)
                self._busy_since.pop(key, None)
                self._queue.done(key, result.written if result else (), seconds)

    async def retry_refused(self) -> None:
        """Retries one forbidden key every few seconds, until it is cancelled.

        The backoff of each key grows to a minute. When the API server accepts a write of one key, two others are
        retried at once, and each of them that succeeds brings two more. So thousands of keys send few requests while
        permissions are missing, and don't wait long when they are restored. If a quota has room for one object more,
        two keys find out that there is no room for them.
        """
        while True:
            await asyncio.sleep(random.uniform(*_REFUSED_SECONDS))  # noqa: S311
            for key in self._next_refused(1):
                self._queue.add(key)

    async def drain(self, seconds: float, over: Callable[[], bool] = lambda: False) -> None:
        """Waits until the running reconciles are done, for at most `seconds`, or until `over` returns True."""
        deadline = time.monotonic() + seconds
        while not self._queue.idle and not over() and time.monotonic() < deadline:
            await asyncio.sleep(0.05)

    def close(self) -> None:
        """Stops the threads without waiting for running reconciles."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def busy_seconds(self) -> float:
        """Returns the run time of the longest running reconcile, in seconds; 0 if there is none."""
        return max((time.monotonic() - since for since in self._busy_since.values()), default=0.0)

    def _timed(self, reconcile: Callable[[str], Result], key: str) -> tuple[Result | None, float]:
        """Runs one reconcile in a worker's thread. Returns its result and its CPU time in seconds."""
        began = time.thread_time()
        result = self._reconcile(reconcile, key)
        return result, time.thread_time() - began

    def _reconcile(self, reconcile: Callable[[str], Result], key: str) -> Result | None:
        """Runs one reconcile in a worker's thread; returns None if it must be retried.

        Catches all errors, so that one TritonModel doesn't stop the others.
        """
        try:
            result = reconcile(key)
        except ApiError as error:
            self._metrics.reconciles.labels("retry").inc()
            _log.warning("the reconcile failed and will be retried: %s", error.message, extra={"key": key})
            self._retry_after[key] = error.retry_after
            if error.code == 403:
                return Result(requeue=True, outside_cause=True)
        except Exception:
            self._metrics.reconciles.labels("error").inc()
            _log.exception("the reconcile failed and will be retried", extra={"key": key})
        else:
            self._metrics.reconciles.labels("error" if result.failed else "ok").inc()
            return result
        return None

    def _after(self, key: str, result: Result | None) -> None:
        self._note_refusal(key, result)
        if result is None or result.requeue:
            self._queue.add_rate_limited(key, self._retry_after.pop(key, 0.0))
        else:
            self._queue.forget(key)
        if result is not None and result.requeue_after is not None:
            self._queue.add_after(key, result.requeue_after)

    def _note_refusal(self, key: str, result: Result | None) -> None:
        """Remembers whether the key is forbidden, and retries others if it no longer is.

        Only a write that the API server accepts proves that. A deleted TritonModel, or one whose spec no longer needs
        the forbidden object, proves nothing.
        """
        is_first = not self._woken
        self._woken.discard(key)
        if result is None:
            return
        if result.outside_cause:
            self._refused.setdefault(key)
        elif key in self._refused:
            del self._refused[key]
            if result.written:
                if is_first:
                    self._on_permissions_restored()
                self._wake_refused()

    def _wake_refused(self) -> None:
        for key in self._next_refused(_WOKEN):
            self._woken.add(key)
            self._queue.forget(key)
            self._queue.add(key)

    def _next_refused(self, count: int) -> list[str]:
        """Returns forbidden keys that nobody retries now, and makes them the last ones to be retried."""
        idle = (key for key in self._refused if key not in self._woken and key not in self._busy_since)
        keys = list(itertools.islice(idle, count))
        for key in keys:
            self._refused[key] = self._refused.pop(key)
        return keys
