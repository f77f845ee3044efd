"""The operator's process. Every replica watches; the replica that holds the Lease reconciles."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.cluster.addresses import Addresses
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.connection import client_of_environment
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.objects import controller, state
from triton_operator.cluster.store import Store
from triton_operator.decisions import groups
from triton_operator.pods import Pod
from triton_operator.probe import Prober
from triton_operator.probe.credentials import headers
from triton_operator.reconcile import Reconciler
from triton_operator.render import Facts
from triton_operator.render.facts import RenderSettings

from . import health
from .discovery import Discovery
from .elector import Elector
from .leading import Leading
from .listing import Listing
from .metrics import Metrics, gauges_of
from .queue import WorkQueue
from .resync import Resync
from .settings import Settings
from .watch import Watches
from .work import Workers

_log = logging.getLogger(__name__)
_DRAIN_SECONDS = 15
"""How long to wait for running reconciles after a signal. Together with releasing the Lease it is less than the pod's
grace period of 30 s."""
_STUCK_SECONDS = 300
_CONNECTIONS = 24
"""Connections to the API server beside the workers': for the watches, the Lease and listings."""
_OBJECTS = 3
"""The store's part of the memory, in sixteenths. If it needs more, each namespace is limited to its share. It never
takes more than twice this part. The process itself, the servers' answers and the reconciles need the rest."""


class App:
    """Creates and connects the parts of the operator. `run` returns the exit code of the process.

    `group_policies`: return the groups of servers beside the one that every TritonModel has.
    """

    def __init__(
        self,
        settings: Settings,
        api: KubernetesApi | None = None,
        metrics: Metrics | None = None,
        group_policies: Sequence[groups.Policy] = groups.POLICIES,
    ) -> None:
        self._settings, self._group_policies = settings, group_policies
        self._metrics = metrics or Metrics()
        on_request = self._metrics.on_request
        self._api = api or KubernetesApi(client_of_environment(settings.workers + _CONNECTIONS), on_request)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop, self._kinds_changed, self._watched_at = asyncio.Event(), asyncio.Event(), time.monotonic()
        self._store = Store((settings.memory_mib << 20) * _OBJECTS // 16)
        self._queue = WorkQueue(settings.workers, waited=self._metrics.waited.observe)
        self._workers = Workers(settings.workers, self._queue, self._metrics, self._on_permissions_restored)
        self._listing = Listing(self._api, self._store, settings.namespaces)
        self._elector = Elector(
            self._api,
            settings.namespace,
            names.FIELD_MANAGER,
            settings.identity,
            # The elector and the watches call these in their own threads.
            on_version_rollback=lambda: self._call_soon(self._resync.restart_watches),
        )
        self._watches = Watches(self._api, self._on_event, lambda: self._call_soon(self._resync.relist))
        self._prober = Prober(
            lambda key: self._call_soon(self._queue.add, key),
            settings.namespaces,
            self._metrics.on_probe,
            headers(settings.prometheus_url, settings.prometheus_credentials),
            Addresses(self._api).holds,
            settings.metrics_job,
        )
        self._resync = Resync(
            self._listing,
            self._store,
            self._queue,
            self._watches,
            self._elector.leading,
            settings.resync_seconds,
            begin=self._begin,
            on_kinds=self._kinds_changed.set,
            before_all=lambda: self._reconciler.try_newer_fields(),
        )
        self._discovery = Discovery(
            self._api, self._listing, settings, self._resync.listed.is_set, self._on_kinds, self._resync.enqueue
        )
        self._reconciler = self._make_reconciler()
        self._leading = Leading(
            self._elector, self._resync, self._discovery, self._workers, self._reconciler.reconcile, settings.workers
        )
        self._count()

    async def run(self) -> int:
        """Runs until a signal, or until the lease is lost. Returns 0 after a signal, otherwise 1."""
        self._loop = asyncio.get_running_loop()
        # Process 1 has no default handlers.
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop.set)
        settings, proxy = self._settings, self._api.connection.proxy
        used = f"the proxy {proxy.scheme}://{proxy.netloc}" if proxy else "no proxy"
        _log.info("connections to the API server %s use %s", self._api.connection.server, used)
        probes = await health.serve_probes(settings.probe_port, self._liveness_error, self._readiness_error)
        end_metrics = health.serve_metrics(settings.port, self._metrics.registry, settings.metrics_seconds)
        try:
            stop = asyncio.create_task(self._stop.wait(), name="stop")
            crd = asyncio.create_task(self._wait_for_crd(), name="served")
            await asyncio.wait({stop, crd}, return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                return 0  # without waiting for hanging requests
            crd.result()
            lead = asyncio.create_task(self._leading.run(), name="lead")
            watches = asyncio.create_task(self._keep_watches(), name="watches")
            await asyncio.wait({stop, lead, watches}, return_when=asyncio.FIRST_COMPLETED)
            self._queue.close()
            if watches.done():
                watches.result()  # a failure ends the process
            watches.cancel()
            return 0 if await self._leading.end(lead, _DRAIN_SECONDS) else 1
        finally:
            self._watches.stop()
            self._workers.close()
            probes.close()
            end_metrics()

    async def _keep_watches(self) -> None:
        """Starts the watches, and changes them when the cluster's kinds or the readable namespaces change."""
        while True:
            self._watches.set(self._listing.kinds(), self._listing.open_namespaces())
            await self._kinds_changed.wait()
            self._kinds_changed.clear()

    async def _begin(self) -> None:
        """Prepares the first reconcile. Raises ApiError."""
        await self._discovery.prepare()
        self._prober.start()

    def _on_kinds(self) -> None:
        """Watches and lists the cluster's kinds, which have changed."""
        self._kinds_changed.set()
        self._resync.relist()

    def _count(self) -> None:
        """Adds the metrics that each scrape reads."""
        self._metrics.count_models(
            lambda: self._store.map_kind(names.KIND, gauges_of),
            lambda: _sums(pair for _, pair in self._store.map_kind(kinds.DEPLOYMENT.kind, _desired_replicas)),
            lambda: Counter(key for key, ready in self._store.map_kind(kinds.POD.kind, _is_ready) if ready),
        )
        self._metrics.count_refused(lambda: ((kind.plural, ns or "") for kind, ns in self._listing.refused))
        self._metrics.depth.set_function(lambda: len(self._queue))
        self._metrics.leading.set_function(lambda: float(self._elector.leading.is_set()))

    def _make_reconciler(self) -> Reconciler:
        defaults = Facts(
            self._settings.tools_image,
            settings=RenderSettings(
                operator_namespace=self._settings.namespace,
                metrics_job=self._settings.metrics_job,
                sample_limit=self._settings.sample_limit,
                runbooks=self._settings.runbooks,
                rate_limit_service=self._settings.rate_limit_service,
                engines=self._settings.engines,
            ),
        )
        return Reconciler(
            # A hanging reconcile may outlive the Lease. It must not write then.
            self._api.fenced(self._elector.may_write),
            self._store,
            self._prober,
            defaults,
            self._discovery.cluster,
            self._metrics.on_threshold,
            self._settings.progress_seconds,
            self._settings.collect_seconds,
            on_scale_up=self._metrics.scale_ups.inc,
            on_repair=self._metrics.on_repair,
            group_policies=self._group_policies,
        )

    async def _wait_for_crd(self) -> None:
        """Waits until the API server serves TritonModels and lists them."""
        while not self._stop.is_set():
            try:
                await asyncio.to_thread(self._listing.list_models)
                await self._discovery.discover()
            except ApiError as error:
                _log.warning("waiting for the CRD and the permission to read TritonModels: %s", error.message)
                await asyncio.sleep(2)
            else:
                return

    def _on_permissions_restored(self) -> None:
        """Polls the Prometheuses at once, because listing them probably failed without the permissions too."""
        _log.info("the API server allows the operator's writes again")
        self._discovery.poll_now()

    def _call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls the function in the event loop. Other threads call this."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _on_event(self, event: str, obj: dict[str, Any]) -> None:
        """Stores an event of a watch. The watches call this in their own threads."""
        key = self._store.mark_lost(obj) if event == "DELETED" else self._store.put(obj)
        if key is not None:
            spec_changed = event == "MODIFIED" and obj["kind"] == names.KIND and _is_change_of_spec(obj)
            self._call_soon(self._on_change, key, state(obj), spec_changed)

    def _on_change(self, key: str, state_: str, spec_changed: bool) -> None:
        if spec_changed:
            # Reconcile a changed spec at once, without the backoff of the previous one.
            self._queue.forget(key)
        # A replica that doesn't lead doesn't reconcile. When leading begins, all keys are enqueued.
        if self._elector.leading.is_set():
            self._queue.add(key, state_)

    def _liveness_error(self) -> str:
        if self._workers.busy_seconds > _STUCK_SECONDS:
            return f"a reconcile has been running for more than {_STUCK_SECONDS} s"
        if not (closed := self._watches.closed):
            self._watched_at = time.monotonic()
        elif time.monotonic() - self._watched_at > _STUCK_SECONDS:
            return f"watches have been down for more than {_STUCK_SECONDS} s: {', '.join(sorted(closed))}"
        return ""

    def _readiness_error(self) -> str:
        if closed := self._watches.closed:
            return f"watches have not started: {', '.join(sorted(closed))}"
        if self._elector.leading.is_set() and not self._resync.listed.is_set():
            return "this replica leads and hasn't listed the objects yet"
        return ""


def _is_ready(pod: dict[str, Any]) -> bool:
    """Returns whether a server is ready that isn't the canary's: alerts are about those that most requests get."""
    return Pod(pod).is_ready and not _is_canary(pod)


def _is_canary(obj: dict[str, Any]) -> bool:
    return bool(obj["metadata"].get("labels", {}).get(names.LABEL_GROUP) == names.CANARY)


def _desired_replicas(deployment: dict[str, Any]) -> tuple[str, int]:
    """Returns the uid of a Deployment's TritonModel, and the desired number of servers, without a canary's."""
    owner = controller(deployment)
    return owner["uid"] if owner else "", 0 if _is_canary(deployment) else int(deployment["spec"]["replicas"])


def _sums(pairs: Iterable[tuple[str, int]]) -> Counter[str]:
    """Returns the sum of the numbers with each key."""
    sums: Counter[str] = Counter()
    for key, number in pairs:
        sums[key] += number
    return sums


def _is_change_of_spec(model: dict[str, Any]) -> bool:
    """Returns whether the status describes an older generation."""
    return bool(model.get("status", {}).get("observedGeneration") != model["metadata"].get("generation"))
