"""The operator's process. Every replica watches; the replica that holds the Lease reconciles."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from typing import Any, cast

from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind
from triton_operator.cluster import nodes
from triton_operator.cluster.api import ApiError, KubernetesApi
from triton_operator.cluster.monitoring import Monitoring
from triton_operator.cluster.store import Store, controller, state
from triton_operator.probe import Prober
from triton_operator.reconcile import Reconciler
from triton_operator.render import Choices

from . import health, watch
from .elector import Elector
from .listing import Listing
from .metrics import Metrics, facts
from .queue import WorkQueue
from .settings import Settings
from .work import Workers

_log = logging.getLogger(__name__)
_DRAIN_SECONDS = 15
"""How long to wait for running reconciles after a signal. Together with releasing the Lease and stopping the watches
it is less than the pod's grace period of 30 s."""
_WATCHES_SECONDS = 2
"""How long to wait for the watches to end."""
_STUCK_SECONDS = 300
_OBJECTS = 3
"""The store's part of the memory, in sixteenths. If it needs more, each namespace is limited to its share. It never
takes more than twice this part. The process itself, the servers' answers and the reconciles need the rest."""
_RELIST_SECONDS = 5
"""Delay from the restart of a watch to a resync, because the other watches usually restart too."""


class App:
    """Creates and connects the parts of the operator. `run` returns the exit code of the process."""

    def __init__(self, settings: Settings, api: KubernetesApi | None = None, metrics: Metrics | None = None) -> None:
        self._settings = settings
        self._metrics = metrics or Metrics()
        self._api = api or KubernetesApi.from_environment(settings.workers + 4, self._metrics.on_request)
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
        self._stop, self._watching = asyncio.Event(), asyncio.Event()
        self._known, self._listed = asyncio.Event(), asyncio.Event()
        self._relisted, self._due, self._restart_requested = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._monitoring = Monitoring(self._api, settings.prometheus_url, settings.prometheus_namespaces)
        self._prober = Prober(self._add_from_prober, settings.namespaces, self._metrics.on_probe, settings.sample_limit)
        self._reconciler: Reconciler | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched_at = time.monotonic()
        self._metrics.count_models(
            lambda: self._store.map_kind(names.KIND, facts),
            lambda: dict(found for _, found in self._store.map_kind(kinds.DEPLOYMENT.kind, _desired_replicas)),
        )
        self._metrics.depth.set_function(lambda: len(self._queue))
        self._metrics.leading.set_function(lambda: float(self._elector.leading.is_set()))

    async def run(self) -> int:
        """Runs until a signal, or until the lease is lost. Returns 0 after a signal, otherwise 1.

        Starts all other tasks before the watches, because kopf cancels tasks that are created while it runs.
        """
        self._loop = asyncio.get_running_loop()
        watch.stop_on_signals(self._stop)
        server = await health.serve(
            self._settings.port, self._liveness_error, self._readiness_error, self._metrics.registry
        )
        try:
            stop = asyncio.create_task(self._stop.wait(), name="stop")
            served = asyncio.create_task(self._wait_for_crd(), name="served")
            await asyncio.wait({stop, served}, return_when=asyncio.FIRST_COMPLETED)
            if stop.done():
                return 0  # without waiting for hanging requests
            served.result()
            lead = asyncio.create_task(self._lead(), name="lead")
            lead.add_done_callback(lambda _: self._stop.set())
            await asyncio.sleep(0.1)  # lets it create its tasks
            watching = asyncio.create_task(
                watch.watch(
                    self._on_event,
                    self._discover,
                    self._settings.namespaces,
                    self._stop,
                    self._restart_requested,
                    self._watching,
                ),
                name="watch",
            )
            await asyncio.wait({stop, lead, watching}, return_when=asyncio.FIRST_COMPLETED)
            self._queue.close()
            if watching.done():
                watching.result()  # a failure ends the process
            if not lead.done():
                await self._workers.drain(_DRAIN_SECONDS, lead.done)
            if lead.done():
                return self._lost(lead)
            lead.cancel()
            await asyncio.gather(lead, return_exceptions=True)
            if self._elector.held:
                await self._elector.release()
            await asyncio.wait({watching}, timeout=_WATCHES_SECONDS)
            return 0
        finally:
            self._workers.close()
            server.close()

    async def _lead(self) -> None:
        """Waits for the Lease, reconciles while it holds it, and returns when the Lease is lost."""
        async with asyncio.TaskGroup() as group:
            beside = (
                self._resync(),
                self._resync_when_leading(),
                self._poll_discovery(),
                self._workers.retry_refused(),
            )
            work = [group.create_task(each) for each in beside]
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
                    self._reconciler = await asyncio.to_thread(self._make_reconciler)
                    if self._known.is_set():
                        self._enqueue_all()
                if await asyncio.to_thread(self._listing.list_all):
                    self._restart_watches()
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
            self._known.set()
            if leads:
                self._enqueue_all()
            await self._wait_for_next_resync(self._settings.resync_seconds * random.uniform(0.9, 1.1), leads=leads)  # noqa: S311

    def _enqueue_all(self) -> None:
        for key in self._store.all_keys():
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
        """Waits for `seconds`, or until a listing is due.

        Creates no task, because kopf waits 5 s for tasks that were created while it ran.
        """
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
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._restart_watches)

    def _restart_watches(self) -> None:
        """Restarts the watches and the listing.

        After a restore of etcd a watch that continues from an older resourceVersion gets no error, and no event until
        the cluster has reached that number again.
        """
        _log.warning("resourceVersions are lower than before, as after a restore of etcd: reading all objects again")
        self._restart_requested.set()
        self._relist()

    async def _resync_when_leading(self) -> None:
        """Starts a resync when leading begins."""
        await self._elector.leading.wait()
        self._due.set()

    async def _discover(self) -> tuple[Kind, ...]:
        """Discovers the optional kinds; returns all kinds to watch."""
        served = await asyncio.to_thread(self._listing.discover)
        if served != self._listing.served and self._known.is_set():
            _log.info("optional kinds of the cluster: %s", ", ".join(sorted(k.kind for k in served)) or "none")
            self._monitoring.forget()
            self._relist()
        self._listing.served = served
        return self._listing.kinds()

    async def _poll_discovery(self) -> None:
        """Polls for optional kinds and restarts the watches when they change.

        Enqueues all TritonModels when the cluster's Prometheuses change.
        """
        while True:
            await asyncio.sleep(self._settings.discovery_seconds)
            before = self._listing.served
            try:
                await self._discover()
            except ApiError as error:
                _log.warning("could not discover the cluster's kinds: %s", error.message)
                continue
            if self._listing.served != before:
                self._restart_requested.set()
            known = self._store.all_keys() if self._listed.is_set() and self._listing.served else []
            namespaces = {key.split("/")[0] for key in known}
            if not namespaces:
                continue
            if await asyncio.to_thread(self._monitoring.changed, namespaces):
                for key in known:
                    self._queue.add(key)

    def _add_from_prober(self, key: str) -> None:
        """Adds a key to the queue. The prober calls this in its own thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.add, key)

    async def _work(self) -> None:
        # The first reconcile needs the complete listing.
        await self._listed.wait()
        await self._workers.work(cast(Reconciler, self._reconciler).reconcile)

    def _make_reconciler(self) -> Reconciler:
        delivery = nodes.best_delivery(self._api)
        _log.info("delivery Auto means %s on this cluster", delivery)
        defaults = Choices(
            self._settings.tools_image,
            delivery,
            operator_namespace=self._settings.namespace,
            metrics_job=self._settings.metrics_job,
            sample_limit=self._settings.sample_limit,
            target_labels=self._settings.target_labels,
            runbooks=self._settings.runbooks,
        )
        self._prober.start()
        return Reconciler(
            # A hanging reconcile may outlive the Lease. It must not write then.
            self._api.fenced(self._elector.may_write),
            self._store,
            self._prober,
            self._monitoring,
            defaults,
            self._listing.serves,
            self._metrics.on_threshold,
            self._settings.progress_seconds,
            self._settings.collect_seconds,
            on_scale_up=self._metrics.scale_ups.inc,
            samples_per_namespace=self._settings.samples_per_namespace,
        )

    async def _wait_for_crd(self) -> None:
        """Waits until the API server serves TritonModels, because kopf discovers kinds only when it starts."""
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
        """Discards the list of Prometheuses, because listing them probably failed without the permissions too."""
        _log.info("the API server allows the operator's writes again")
        self._monitoring.forget()

    def _on_event(self, kind: str | None, obj: dict[str, Any]) -> None:
        if kind is None and self._known.is_set():
            # The watch was restarted, so it may have missed deletions.
            self._relist()
        key = self._store.mark_lost(obj) if kind == "DELETED" else self._store.put(obj)
        if key is None:
            return
        if kind == "MODIFIED" and obj["kind"] == names.KIND and _is_change_of_spec(obj):
            # Reconcile a changed spec at once, without the backoff of the previous one.
            self._queue.forget(key)
        # A replica that doesn't lead doesn't reconcile. When leading begins, all keys are enqueued.
        if self._elector.leading.is_set():
            self._queue.add(key, state(obj))

    def _liveness_error(self) -> str:
        if self._workers.busy_seconds > _STUCK_SECONDS:
            return f"a reconcile has been running for more than {_STUCK_SECONDS} s"
        if self._watching.is_set():
            self._watched_at = time.monotonic()
        elif time.monotonic() - self._watched_at > _STUCK_SECONDS:
            return f"the watches have been down for more than {_STUCK_SECONDS} s"
        return ""

    def _readiness_error(self) -> str:
        return "" if self._watching.is_set() else "the watches have not started"


def _retry_seconds(error: Exception, failures: int, took: float) -> float:
    """Returns the delay before a failed listing is retried.

    A forbidden one is retried every 2 to 5 s, because permissions may return at any moment; less often if it takes long
    until the refusal.
    """
    if isinstance(error, ApiError) and error.code == 403:
        return min(60.0, random.uniform(2.0, 5.0) + 10 * took)  # noqa: S311
    return min(60.0, 2.0**failures)


def _desired_replicas(deployment: dict[str, Any]) -> tuple[str, int]:
    """Returns the uid of a Deployment's TritonModel, and the desired number of servers."""
    owner = controller(deployment)
    return owner["uid"] if owner else "", int(deployment["spec"]["replicas"])


def _is_change_of_spec(model: dict[str, Any]) -> bool:
    """Returns whether the status describes an older generation."""
    return bool(model.get("status", {}).get("observedGeneration") != model["metadata"].get("generation"))
