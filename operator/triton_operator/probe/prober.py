"""The prober: a thread with its own event loop, so that slow answers don't delay the watches and the Lease."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from triton_operator.api.names import METRICS_JOB
from triton_operator.api.servers import RunningServer

from .changes import ModelChanges
from .comparisons import comparison_probes
from .credentials import Headers
from .fetch import HttpClient
from .load_times import load_times
from .loads import load_probes
from .memory import memory_probes
from .placement import runs_on_cpu
from .prometheus_probes import PrometheusProbes
from .readiness import says_not_ready
from .servers import ServerProbes
from .statistics import uncounted
from .triton import server_version

_log = logging.getLogger(__name__)
_RESTART_SECONDS = 1.0


class Prober:
    """Polls servers and Prometheuses from `start` until the process ends.

    - `on_change(key)`: called in the prober's thread when an answer about the TritonModel `key` has changed.
    - `namespaces`: limits the Prometheus queries to these; empty means all.
    - `on_answer(target, answered)`: called after each poll of a `server` or a `prometheus`.
    - `credentials`: the credentials for a Prometheus.
    - `holds_address`: see `ModelChanges`.
    - `metrics_job`: the label `job` of the operator's metrics in Prometheus.
    """

    def __init__(
        self,
        on_change: Callable[[str], None],
        namespaces: Collection[str] = (),
        on_answer: Callable[[str, bool], None] = lambda *_: None,
        credentials: Headers = lambda _: {},
        holds_address: Callable[[str, RunningServer], bool] = lambda *_: True,
        metrics_job: str = METRICS_JOB,
    ) -> None:
        self.loads = load_probes(on_change)
        self.comparisons = comparison_probes()
        self.memory = memory_probes(on_change)
        self.servers = ServerProbes(
            on_change,
            on_answer=lambda answered: on_answer("server", answered),
            count=uncounted,
            runs_on_cpu=runs_on_cpu,
            says_not_ready=says_not_ready,
            version=server_version,
            load_times=load_times,
        )
        self.changes = ModelChanges(on_change, self.servers.refresh, holds_address=holds_address)
        self.prometheuses = PrometheusProbes(
            on_change, namespaces, lambda answered: on_answer("prometheus", answered), credentials, job=metrics_job
        )

    def start(self) -> None:
        """Starts the thread, which ends with the process."""
        threading.Thread(target=lambda: asyncio.run(self._main()), name="prober", daemon=True).start()

    def forget(self, key: str) -> None:
        """Stops polling for `key`."""
        self.servers.forget(key)
        self.loads.forget(key)
        self.comparisons.forget(key)
        self.memory.forget(key)
        self.changes.forget(key)
        self.prometheuses.forget(key)

    async def _main(self) -> None:
        parts = (
            self.servers.run,
            self.loads.run,
            self.comparisons.run,
            self.memory.run,
            self.changes.run,
            self.prometheuses.run,
        )
        http = HttpClient()
        await asyncio.gather(*(_supervised(run, http) for run in parts))


async def _supervised(run: Callable[[HttpClient], Coroutine[Any, Any, None]], http: HttpClient) -> None:
    """Calls `run` again whenever it fails."""
    while True:
        try:
            await run(http)
        except Exception:
            _log.exception("the prober failed; starting it again")
        await asyncio.sleep(_RESTART_SECONDS)
