"""Reconciles while this replica holds the Lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from triton_operator.reconcile import Result

from .discovery import Discovery
from .elector import Elector
from .resync import Resync
from .work import Workers

_log = logging.getLogger(__name__)


class Leading:
    """Waits for the Lease, and reconciles with `count` workers while this replica holds it."""

    def __init__(
        self,
        elector: Elector,
        resync: Resync,
        discovery: Discovery,
        workers: Workers,
        reconcile: Callable[[str], Result],
        count: int,
    ) -> None:
        self._elector, self._resync, self._discovery = elector, resync, discovery
        self._workers, self._reconcile, self._count = workers, reconcile, count

    async def run(self) -> None:
        """Runs until the Lease is lost."""
        async with asyncio.TaskGroup() as group:
            coroutines = (
                self._resync.run(),
                self._resync.poll_refused(),
                self._resync.start_when_leading(),
                self._discovery.run(),
                self._workers.retry_refused(),
            )
            work = [group.create_task(coroutine) for coroutine in coroutines]
            work += [group.create_task(self._work(), name=f"worker-{n}") for n in range(self._count)]
            await self._elector.run()
            for task in work:
                task.cancel()

    async def end(self, run: asyncio.Task[None], seconds: float) -> bool:
        """Ends `run`, the task of this class's method. Returns whether this replica gave the Lease up itself.

        Waits for running reconciles, for `seconds` at most, but not when the Lease is lost: another replica may lead
        then.
        """
        if not run.done():
            await self._workers.drain(seconds, run.done)
        if run.done():
            if not run.cancelled() and (error := run.exception()):
                _log.error("the workers failed", exc_info=error)
            return False
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        if self._elector.held:
            await self._elector.release()
        return True

    async def _work(self) -> None:
        # The first reconcile needs the complete listing.
        await self._resync.listed.wait()
        await self._workers.work(self._reconcile)
