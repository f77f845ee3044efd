"""The prober: a thread with an event loop of its own, so that slow answers delay no watch and no Lease."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from .loads import LoadProbes
from .prometheuses import PrometheusProbes
from .servers import ServerProbes

_log = logging.getLogger(__name__)
_RESTART_SECONDS = 1.0


class Prober:
    """Asks servers and Prometheuses, from `start` until the process ends.

    `on_change(key)` is called in the prober's thread when there is news about the TritonModel `key`. `namespaces`:
    Prometheus is asked about these only, where there are any. `on_answer(target, answered)`: after each attempt to
    ask a `server` or a `prometheus`.
    """

    def __init__(
        self,
        on_change: Callable[[str], None],
        namespaces: Collection[str] = (),
        on_answer: Callable[[str, bool], None] = lambda *_: None,
    ) -> None:
        self.loads = LoadProbes(on_change)
        self.servers = ServerProbes(on_change, on_answer=lambda answered: on_answer("server", answered))
        self.prometheuses = PrometheusProbes(
            on_change, namespaces, on_answer=lambda answered: on_answer("prometheus", answered)
        )

    def start(self) -> None:
        """Begins in a thread that ends with the process."""
        threading.Thread(target=lambda: asyncio.run(self._main()), name="prober", daemon=True).start()

    def forget(self, key: str) -> None:
        """Asks nothing about `key` any more."""
        self.servers.forget(key)
        self.loads.forget(key)
        self.prometheuses.forget(key)

    async def _main(self) -> None:
        parts = (self.servers.run, self.loads.run, self.prometheuses.run)
        await asyncio.gather(*map(_supervised, parts))


async def _supervised(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs it for ever: what fails is begun anew."""
    while True:
        try:
            await run()
        except Exception:
            _log.exception("the prober failed; starting it again")
        await asyncio.sleep(_RESTART_SECONDS)
