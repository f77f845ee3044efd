"""The operator's process. Every replica watches; the replica that holds the Lease reconciles."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from triton_operator.api import kinds, kubernetes_versions, names
from triton_operator.api.kinds import Kind
from triton_operator.cluster.addresses import Addresses
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.connection import client_of_environment
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.monitoring import Monitoring
from triton_operator.cluster.nodes import Nodes
from triton_operator.cluster.objects import controller, state
from triton_operator.cluster.store import Store
from triton_operator.pods import Pod
from triton_operator.probe import Prober
from triton_operator.probe.credentials import headers
from triton_operator.reconcile import Cluster, Reconciler
from triton_operator.render import Choices, choices

from . import health
from .elector import Elector
from .listing import Listing
from .metrics import Metrics, facts
from .queue import WorkQueue
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
_NODES_SECONDS = 600
"""Interval between listings of the nodes: only a new TritonModel needs them, and their runtimes seldom change."""
_RELIST_SECONDS = 5
"""Delay from the restart of a watch to a resync, because the other watches usually restart too."""


class App:
    """Creates and connects the parts of the operator. `run` returns the exit code of the process."""

    def __init__(self, settings: Settings, api: KubernetesApi | None = None, metrics: Metrics | None = None) -> None:
        self._settings = settings
        self._metrics = metrics or Metrics()
        self._api = api or KubernetesApi(
            client_of_environment(settings.workers + _CONNECTIONS), self._metrics.on_request
        )
        self._store = Store((settings.memory_mib << 20) * _OBJECTS // 16)
        self._queue = WorkQueue(settings.workers, waited=self._metrics.waited.observe)
        self._workers = Workers(settings.workers, self._queue, self._metrics, self._on_permissions_restored)
        self._listing = Listing(self._api, self._store, settings.namespaces)
        self._elector = Elector(
            self._api,
            settings.namespace,
            names.FIELD_MANAGER,
            settings.identity,
            on_version_rollback=self._on_version_rollback,
        )
        self._stop, self._discovered, self._listed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._relisted, self._due, self._kinds_changed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._discover_now = asyncio.Event()
        self._watches = Watches(self._api, self._on_event, lambda: self._call_soon(self._on_begin))
        self._monitoring = Monitoring(self._api, settings.prometheus_namespaces)
        self._nodes, self._nodes_at = Nodes(self._api), 0.0
        credentials = headers(settings.prometheus_url, settings.prometheus_credentials)
        self._prober = Prober(
            self._add_from_prober,
            settings.namespaces,
            self._metrics.on_probe,
            credentials,
            Addresses(self._api).holds,
        )
        self._reconciler: Reconciler | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched_at = time.monotonic()
        self._metrics.count_models(
            lambda: self._store.map_kind(names.KIND, facts),
            lambda: dict(pair for _, pair in self._store.map_kind(kinds.DEPLOYMENT.kind, _desired_replicas)),
            lambda: Counter(key for key, ready in self._store.map_kind(kinds.POD.kind, _is_ready) if ready),
        )
        self._metrics.count_refused(lambda: ((kind.plural, ns or "") for kind, ns in self._listing.refused))
        self._metrics.depth.set_function(lambda: len(self._queue))
        self._metrics.leading.set_function(lambda: float(self._elector.leading.is_set()))

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
            lead = asyncio.create_task(self._lead(), name="lead")
            watches = asyncio.create_task(self._keep_watches(), name="watches")
            await asyncio.wait({stop, lead, watches}, return_when=asyncio.FIRST_COMPLETED)
            self._queue.close()
            if watches.done():
                watches.result()  # a failure ends the process
            watches.cancel()
            if not lead.done():
                await self._workers.drain(_DRAIN_SECONDS, lead.done)
            if lead.done():
                return self._lost(lead)
            lead.cancel()
            await asyncio.gather(lead, return_exceptions=True)
            if self._elector.held:
                await self._elector.release()
            return 0
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

    async def _lead(self) -> None:
        """Waits for the Lease, reconciles while it holds it, and returns when the Lease is lost."""
        async with asyncio.TaskGroup() as group:
            coroutines = (
                self._resync(),
                self._poll_refused(),
                self._resync_when_leading(),
                self._poll_discovery(),
                self._workers.retry_refused(),
            )
            work = [group.create_task(coroutine) for coroutine in coroutines]
            work += [group.create_task(self._work(), name=f"worker-{n}") for n in range(self._settings.workers)]
            await self._elector.run()
            for task in work:
                task.cancel()

    def _lost(self, lead: asyncio.Task[None]) -> int:
        """Returns the exit code when the Lease is lost. Doesn't wait for reconciles: another replica may lead now."""
        if not lead.cancelled() and (error := lead.exception()):
            _log.error("the workers failed", exc_info=error)
        return 1

    async def _resync(self) -> None:
        """Lists all objects at the start, when leading begins, and about every ten minutes: watches can miss changes.

        A replica that doesn't lead lists too, because Prometheus also reads its thresholds. When it begins to lead, it
        starts with the objects that it knows.
        """
        failures = 0
        while True:
            leads, began = self._elector.leading.is_set(), time.monotonic()
            self._due.clear()
            try:
                if leads and self._reconciler is None:
                    await asyncio.to_thread(self._refresh_nodes)
                    await asyncio.to_thread(self._refresh_monitoring)
                    self._reconciler = self._make_reconciler()
                    if self._discovered.is_set():
                        self._enqueue_all()
                places = self._listing.refused.keys()
                if await asyncio.to_thread(self._listing.list_all):
                    self._restart_watches()
                elif self._listing.refused.keys() != places:
                    self._kinds_changed.set()
            except Exception as error:
                # Watches and workers continue after any failure.
                failures += 1
                if isinstance(error, ApiError):
                    _log.warning("the listing failed: %s", error.message)
                else:
                    _log.exception("the listing failed")
                await self._pause(_retry_seconds(error, failures, time.monotonic() - began))
                continue
            failures = 0
            self._discovered.set()
            self._watches.compare(await asyncio.to_thread(self._listed_uids))
            if leads:
                if self._reconciler is not None:
                    self._reconciler.try_newer_fields()
                self._enqueue_all()
            await self._wait_for_next_resync(self._settings.resync_seconds * random.uniform(0.9, 1.1), leads=leads)  # noqa: S311

    async def _poll_refused(self) -> None:
        """Lists everything again as soon as the API server lists something that it refused before."""
        while True:
            await asyncio.sleep(random.uniform(2.0, 5.0))  # noqa: S311
            if not self._listing.refused:
                continue
            with contextlib.suppress(ApiError):
                if await asyncio.to_thread(self._listing.is_readable_again):
                    self._due.set()

    def _listed_uids(self) -> list[str]:
        closed = self._listing.refused_namespaces
        models = (self._store.model(key) for key in self._store.all_keys() if key.partition("/")[0] not in closed)
        return [model["metadata"]["uid"] for model in models if model is not None]

    def _enqueue_all(self) -> None:
        namespaces = self._listing.refused_namespaces
        for key in self._store.all_keys():
            if key.partition("/")[0] not in namespaces:
                self._queue.add(key)
        self._listed.set()

    async def _wait_for_next_resync(self, seconds: float, *, leads: bool) -> None:
        """Waits for the next listing: for `seconds`, or until a watch restarts, or until leading begins."""
        if not self._relisted.is_set():
            await self._pause(seconds)
        if self._relisted.is_set():
            if leads == self._elector.leading.is_set():
                await self._pause(_RELIST_SECONDS)
            self._relisted.clear()

    async def _pause(self, seconds: float) -> None:
        """Waits for `seconds`, or until a listing is due."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._due.wait()
        self._due.clear()

    def _relist(self) -> None:
        if not self._relisted.is_set():
            self._relisted.set()
            self._due.set()

    def _on_version_rollback(self) -> None:
        """Restarts the watches. The elector calls this in its own thread."""
        self._call_soon(self._restart_watches)

    def _restart_watches(self) -> None:
        """Restarts the watches and the listing.

        After a restore of etcd a watch that continues from an older resourceVersion gets no error, and no event until
        the cluster has reached that number again.
        """
        _log.warning("resourceVersions are lower than before, as after a restore of etcd: reading all objects again")
        self._watches.restart()
        self._relist()

    async def _resync_when_leading(self) -> None:
        """Starts a resync when leading begins."""
        await self._elector.leading.wait()
        self._due.set()

    async def _discover(self) -> tuple[Kind, ...]:
        """Discovers the cluster's version and the optional kinds; returns all kinds to watch."""
        version = await asyncio.to_thread(self._listing.discover_version)
        if version != self._listing.kubernetes:
            self._listing.kubernetes = version
            _tell_version(version)
        optional_kinds = await asyncio.to_thread(self._listing.discover)
        if optional_kinds != self._listing.served and self._discovered.is_set():
            _log.info("optional kinds of the cluster: %s", ", ".join(sorted(k.kind for k in optional_kinds)) or "none")
            self._relist()
        self._listing.served = optional_kinds
        return self._listing.kinds()

    async def _poll_discovery(self) -> None:
        """Polls for optional kinds and restarts the watches when they change.

        Enqueues TritonModels when the Prometheuses that may select them change.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.discovery_seconds):
                    await self._discover_now.wait()
            self._discover_now.clear()
            optional_kinds = self._listing.served
            try:
                await self._discover()
            except ApiError as error:
                _log.warning("could not discover the cluster's kinds: %s", error.message)
                continue
            if self._listing.served != optional_kinds:
                self._kinds_changed.set()
            if not self._listed.is_set():
                continue
            if time.monotonic() - self._nodes_at > _NODES_SECONDS:
                with contextlib.suppress(ApiError):
                    await asyncio.to_thread(self._refresh_nodes)
            before = self._monitoring.installed
            await asyncio.to_thread(self._refresh_monitoring)
            for key in self._store.all_keys():
                if before.differs(self._monitoring.installed, key.partition("/")[0]):
                    self._queue.add(key)

    def _refresh_nodes(self) -> None:
        """Raises ApiError."""
        self._nodes.refresh()
        self._nodes_at = time.monotonic()

    def _refresh_monitoring(self) -> None:
        if self._listing.capabilities().monitoring:
            self._monitoring.refresh()

    def _cluster(self) -> Cluster:
        return Cluster(
            self._listing.capabilities(),
            self._nodes.delivery,
            self._monitoring.installed,
            self._settings.prometheus_url.rstrip("/"),
            self._listing.refused_kinds,
        )

    def _add_from_prober(self, key: str) -> None:
        """Adds a key to the queue. The prober calls this in its own thread."""
        self._call_soon(self._queue.add, key)

    async def _work(self) -> None:
        # The first reconcile needs the complete listing.
        await self._listed.wait()
        await self._workers.work(cast(Reconciler, self._reconciler).reconcile)

    def _make_reconciler(self) -> Reconciler:
        defaults = Choices(
            self._settings.tools_image,
            settings=choices.Settings(
                operator_namespace=self._settings.namespace,
                metrics_job=self._settings.metrics_job,
                sample_limit=self._settings.sample_limit,
                runbooks=self._settings.runbooks,
                keda_authentication=self._settings.keda_authentication,
            ),
        )
        self._prober.start()
        return Reconciler(
            # A hanging reconcile may outlive the Lease. It must not write then.
            self._api.fenced(self._elector.may_write),
            self._store,
            self._prober,
            defaults,
            self._cluster,
            self._metrics.on_threshold,
            self._settings.progress_seconds,
            self._settings.collect_seconds,
            on_scale_up=self._metrics.scale_ups.inc,
            on_repair=self._metrics.on_repair,
        )

    async def _wait_for_crd(self) -> None:
        """Waits until the API server serves TritonModels and lists them."""
        while not self._stop.is_set():
            try:
                await asyncio.to_thread(self._listing.list_models)
                await self._discover()
            except ApiError as error:
                _log.warning("waiting for the CRD and the permission to read TritonModels: %s", error.message)
                await asyncio.sleep(2)
            else:
                return

    def _on_permissions_restored(self) -> None:
        """Polls the Prometheuses at once, because listing them probably failed without the permissions too."""
        _log.info("the API server allows the operator's writes again")
        self._discover_now.set()

    def _call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls the function in the event loop. Other threads call this."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _on_begin(self) -> None:
        """Lists everything again when a watch has begun again: it may have missed deletions."""
        if self._discovered.is_set():
            self._relist()

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
        if self._elector.leading.is_set() and not self._listed.is_set():
            return "this replica leads and hasn't listed the objects yet"
        return ""


def _tell_version(version: tuple[int, int]) -> None:
    """Logs the cluster's version, and whether the operator supports it."""
    if old := kubernetes_versions.too_old(version):
        _log.warning(old)
    elif version > kubernetes_versions.NEWEST:
        newest = kubernetes_versions.name(kubernetes_versions.NEWEST)
        _log.info(
            "Kubernetes %s is newer than %s, the newest version that this operator was tested with",
            kubernetes_versions.name(version), newest,
        )  # fmt: skip
    else:
        _log.info("Kubernetes %s", kubernetes_versions.name(version))


def _retry_seconds(error: Exception, failures: int, seconds: float) -> float:
    """Returns the delay before a failed listing is retried.

    A forbidden one is retried every 2 to 5 s, because permissions may return at any moment; less often if it takes long
    until the refusal.
    """
    if isinstance(error, ApiError) and error.code == 403:
        return min(60.0, random.uniform(2.0, 5.0) + 10 * seconds)  # noqa: S311
    return min(60.0, 2.0 ** min(failures, 16))


def _is_ready(pod: dict[str, Any]) -> bool:
    return Pod(pod).is_ready


def _desired_replicas(deployment: dict[str, Any]) -> tuple[str, int]:
    """Returns the uid of a Deployment's TritonModel, and the desired number of servers."""
    owner = controller(deployment)
    return owner["uid"] if owner else "", int(deployment["spec"]["replicas"])


def _is_change_of_spec(model: dict[str, Any]) -> bool:
    """Returns whether the status describes an older generation."""
    return bool(model.get("status", {}).get("observedGeneration") != model["metadata"].get("generation"))
