"""The resync: lists all objects again, because watches can miss changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable

from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.store import Store

from .listing import Listing
from .queue import WorkQueue
from .watch import Watches

_log = logging.getLogger(__name__)
_RELIST_SECONDS = 5
"""Delay from the restart of a watch to a resync, because the other watches usually restart too."""


class Resync:
    """Lists all objects at the start, when leading begins, after the restart of a watch, and about every `seconds`.

    A replica that doesn't lead lists too, because Prometheus also reads its thresholds. When it begins to lead, it
    starts with the objects that it knows.

    - `leading`: set while this replica holds the Lease.
    - `begin`: called once when leading begins, before the first key is enqueued. May raise ApiError.
    - `on_kinds`: called when the kinds or namespaces that can be read have changed.
    - `before_all`: called before all keys are enqueued.
    - `listed`: set when all keys have been enqueued.
    """

    def __init__(
        self,
        listing: Listing,
        store: Store,
        queue: WorkQueue,
        watches: Watches,
        leading: asyncio.Event,
        seconds: float,
        *,
        begin: Callable[[], Awaitable[None]],
        on_kinds: Callable[[], None],
        before_all: Callable[[], None],
    ) -> None:
        self._listing, self._store, self._queue, self._watches, self._leading = listing, store, queue, watches, leading
        self._seconds, self._begin, self._on_kinds, self._before_all = seconds, begin, on_kinds, before_all
        self.listed = asyncio.Event()
        self._relisted, self._due = asyncio.Event(), asyncio.Event()
        self._began = self._knows = False

    async def run(self) -> None:
        """Runs until it is cancelled."""
        failures = 0
        while True:
            leads, started = self._leading.is_set(), time.monotonic()
            self._due.clear()
            try:
                await self._list(leads=leads)
            except Exception as error:
                # Watches and workers continue after any failure.
                failures += 1
                if isinstance(error, ApiError):
                    _log.warning("the listing failed: %s", error.message)
                else:
                    _log.exception("the listing failed")
                await self._pause(_retry_seconds(error, failures, time.monotonic() - started))
                continue
            failures = 0
            await self._wait(self._seconds * random.uniform(0.9, 1.1), leads=leads)  # noqa: S311

    async def _list(self, *, leads: bool) -> None:
        if leads and not self._began:
            await self._begin()
            self._began = True
            if self._knows:
                self.enqueue()
        places = self._listing.refused.keys()
        if await asyncio.to_thread(self._listing.list_all):
            self.restart_watches()
        elif self._listing.refused.keys() != places:
            self._on_kinds()
        self._knows = True
        self._watches.compare(await asyncio.to_thread(self._listed_uids))
        if leads:
            self._before_all()
            self.enqueue()

    async def start_when_leading(self) -> None:
        """Starts a resync when leading begins."""
        await self._leading.wait()
        self._due.set()

    async def poll_refused(self) -> None:
        """Lists everything again as soon as the API server lists something that it refused before."""
        while True:
            await asyncio.sleep(random.uniform(2.0, 5.0))  # noqa: S311
            if not self._listing.refused:
                continue
            with contextlib.suppress(ApiError):
                if await asyncio.to_thread(self._listing.is_readable_again):
                    self._due.set()

    def enqueue(self, concerns: Callable[[str], bool] = lambda _: True) -> None:
        """Enqueues the keys of the namespaces that it `concerns`, without those that can't be read."""
        namespaces = self._listing.refused_namespaces
        for key in self._store.all_keys():
            namespace = key.partition("/")[0]
            if namespace not in namespaces and concerns(namespace):
                self._queue.add(key)
        self.listed.set()

    def relist(self) -> None:
        """Lists everything soon, because a watch or a kind is new. The first listing needs no other one."""
        if self._knows:
            self._relist()

    def restart_watches(self) -> None:
        """Restarts the watches and the listing.

        After a restore of etcd a watch that continues from an older resourceVersion gets no error, and no event until
        the cluster has reached that number again.
        """
        _log.warning("resourceVersions are lower than before, as after a restore of etcd: reading all objects again")
        self._watches.restart()
        self._relist()

    def _relist(self) -> None:
        if not self._relisted.is_set():
            self._relisted.set()
            self._due.set()

    def _listed_uids(self) -> list[str]:
        closed = self._listing.refused_namespaces
        models = (self._store.model(key) for key in self._store.all_keys() if key.partition("/")[0] not in closed)
        return [model["metadata"]["uid"] for model in models if model is not None]

    async def _wait(self, seconds: float, *, leads: bool) -> None:
        """Waits for the next listing: for `seconds`, or until a watch restarts, or until leading begins."""
        if not self._relisted.is_set():
            await self._pause(seconds)
        if self._relisted.is_set():
            if leads == self._leading.is_set():
                await self._pause(_RELIST_SECONDS)
            self._relisted.clear()

    async def _pause(self, seconds: float) -> None:
        """Waits for `seconds`, or until a listing is due."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._due.wait()
        self._due.clear()


def _retry_seconds(error: Exception, failures: int, seconds: float) -> float:
    """Returns the delay before a failed listing is retried.

    A forbidden one is retried every 2 to 5 s, because permissions may return at any moment; less often if it takes long
    until the refusal.
    """
    if isinstance(error, ApiError) and error.code == 403:
        return min(60.0, random.uniform(2.0, 5.0) + 10 * seconds)  # noqa: S311
    return min(60.0, 2.0 ** min(failures, 16))
