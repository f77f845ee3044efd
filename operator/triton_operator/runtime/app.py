"""The operator's process: every replica watches, the one that holds the Lease works."""

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
"""After a signal, for the passes that have begun. With the release of the Lease and the watches it is less than the
pod's grace period of 30 s."""
_WATCHES_SECONDS = 2
"""For the watches to end, after all else."""
_STUCK_SECONDS = 300
_RELIST_SECONDS = 5
"""From the first watch that begins anew to a resync: the others mostly follow."""


class App:
    """Puts the parts together. `run` returns the exit code of the process."""

    def __init__(self, settings: Settings, api: KubernetesApi | None = None, metrics: Metrics | None = None) -> None:
        self._settings = settings
        self._metrics = metrics or Metrics()
        self._api = api or KubernetesApi.from_environment(settings.workers + 4, self._metrics.on_request)
        self._store = Store()
        self._queue = WorkQueue(waited=self._metrics.waited.observe)
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
        self._relisted, self._due, self._anew = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._monitoring = Monitoring(self._api, settings.prometheus_url)
        self._prober = Prober(self._add_from_prober, settings.namespaces, self._metrics.on_probe)
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
        """Runs until a signal or until the lease is lost: 0 after a signal, else 1.

        Everything but the watches is started before them: kopf cancels what is started in its loop afterwards.
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
                return 0  # a request that hangs isn't waited for
            served.result()
            lead = asyncio.create_task(self._lead(), name="lead")
            lead.add_done_callback(lambda _: self._stop.set())
            await asyncio.sleep(0.1)  # until its own tasks have begun
            watching = asyncio.create_task(
                watch.watch(
                    self._on_event, self._discover, self._settings.namespaces, self._stop, self._anew, self._watching
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
        """Campaigns, works while leading, and ends when leading has ended."""
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
        """Nothing is waited for: the next leader may begin before a pass or a watch that hangs has ended."""
        if not lead.cancelled() and (error := lead.exception()):
            _log.error("the work ended", exc_info=error)
        return 1

    async def _resync(self) -> None:
        """Lists everything at once, again when leading begins, and then every ten minutes or so: a watch can miss
        what a listing shows. A replica that doesn't lead lists too, because the thresholds that it tells Prometheus
        shall not be those of yesterday; when it begins to lead, work begins with what it has seen so far."""
        failures = 0
        while True:
            leads, began = self._elector.leading.is_set(), time.monotonic()
            self._due.clear()
            try:
                if leads and self._reconciler is None:
                    self._reconciler = await asyncio.to_thread(self._make_reconciler)
                    if self._known.is_set():
                        self._enqueue_all()
                if await asyncio.to_thread(self._listing.everything):
                    self._restart_watches()
            except Exception as error:
                # Whatever it is, the watches and the workers go on.
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
        """Waits for the next listing: in so many seconds, when a watch has begun anew, or when leading begins."""
        if not self._relisted.is_set():
            await self._pause(seconds)
        if self._relisted.is_set():
            if leads == self._elector.leading.is_set():
                await self._pause(_RELIST_SECONDS)
            self._relisted.clear()

    async def _pause(self, seconds: float) -> None:
        """Waits so many seconds, or less where a listing is due. It makes no task: kopf waits 5 s for those that were
        made while it ran, and cancels them, when it ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._due.wait()
        self._due.clear()

    def _relist(self) -> None:
        if not self._relisted.is_set():
            self._relisted.set()
            self._due.set()

    def _on_version_rollback(self) -> None:
        """The elector calls it from a thread of its own."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._restart_watches)

    def _restart_watches(self) -> None:
        """Begins the watches and the listing anew. A watch that goes on from a resourceVersion of before a restore of
        etcd gets no event until the cluster has reached that number again, and no error."""
        _log.warning("resourceVersions are lower than before, as after a restore of etcd: reading everything anew")
        self._anew.set()
        self._relist()

    async def _resync_when_leading(self) -> None:
        """A new leader waits for no listing."""
        await self._elector.leading.wait()
        self._due.set()

    async def _discover(self) -> tuple[Kind, ...]:
        """The kinds to watch."""
        served = await asyncio.to_thread(self._listing.discover)
        if served != self._listing.served and self._known.is_set():
            _log.info("the cluster now has %s", ", ".join(sorted(k.kind for k in served)) or "no monitoring")
            self._monitoring.forget()
            self._relist()
        self._listing.served = served
        return self._listing.kinds()

    async def _poll_discovery(self) -> None:
        """Watches for CRDs of others that come and go, and begins anew with what there is then. Prometheuses that come
        and go concern every TritonModel: without this each would look for itself, again and again."""
        while True:
            await asyncio.sleep(self._settings.discovery_seconds)
            before = self._listing.served
            try:
                await self._discover()
            except ApiError as error:
                _log.warning("which kinds the cluster has isn't known: %s", error.message)
                continue
            if self._listing.served != before:
                self._anew.set()
            known = self._store.all_keys() if self._listed.is_set() and self._listing.served else []
            namespaces = {key.split("/")[0] for key in known}
            if not namespaces:
                continue
            if await asyncio.to_thread(self._monitoring.changed, namespaces):
                for key in known:
                    self._queue.add(key)

    def _add_from_prober(self, key: str) -> None:
        """The prober has news; it calls from a thread of its own."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.add, key)

    async def _work(self) -> None:
        # What is already there is known before the first decision.
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
        )
        self._prober.start()
        return Reconciler(
            # A pass outlives the Lease where a request hangs.
            self._api.fenced(self._elector.may_write),
            self._store,
            self._prober,
            self._monitoring,
            defaults,
            self._listing.serves,
            self._metrics.on_threshold,
            self._settings.progress_seconds,
            self._settings.collect_seconds,
        )

    async def _wait_for_crd(self) -> None:
        """Waits until the API server knows TritonModels: kopf looks for them once, when it starts."""
        while not self._stop.is_set():
            try:
                await asyncio.to_thread(self._listing.models)
                await self._discover()
            except ApiError as error:
                _log.warning("waiting for the CRD and the rights to read it: %s", error.message)
                await asyncio.sleep(2)
            else:
                return

    def _on_permissions_restored(self) -> None:
        """The rights are back; without them it wasn't known either which Prometheuses there are."""
        _log.info("the API server lets the operator write again")
        self._monitoring.forget()

    def _on_event(self, kind: str | None, obj: dict[str, Any]) -> None:
        if kind is None and self._known.is_set():
            # A watch had to begin anew: what vanished meanwhile is told by no event.
            self._relist()
        key = self._store.mark_lost(obj) if kind == "DELETED" else self._store.put(obj)
        if key is None:
            return
        if kind == "MODIFIED" and obj["kind"] == names.KIND and _is_change_of_spec(obj):
            # A mended spec doesn't wait for the pause that the broken one had earned.
            self._queue.forget(key)
        # Before it leads, nobody takes keys; then it begins with all, those first that changed last.
        if self._elector.leading.is_set():
            self._queue.add(key, state(obj))

    def _liveness_error(self) -> str:
        if self._workers.busy_seconds > _STUCK_SECONDS:
            return f"a pass has been running for more than {_STUCK_SECONDS} s"
        if self._watching.is_set():
            self._watched_at = time.monotonic()
        elif time.monotonic() - self._watched_at > _STUCK_SECONDS:
            return f"the watches have been down for more than {_STUCK_SECONDS} s"
        return ""

    def _readiness_error(self) -> str:
        return "" if self._watching.is_set() else "the watches have not started"


def _retry_seconds(error: Exception, failures: int, took: float) -> float:
    """Until a listing that has failed is tried again. What is forbidden may be allowed at any moment, so it is tried
    each 2 to 5 s, or less often where much is listed before the refusal."""
    if isinstance(error, ApiError) and error.code == 403:
        return min(60.0, random.uniform(2.0, 5.0) + 10 * took)  # noqa: S311
    return min(60.0, 2.0**failures)


def _desired_replicas(deployment: dict[str, Any]) -> tuple[str, int]:
    """The uid of the TritonModel that a Deployment is of, and how many servers it shall have."""
    owner = controller(deployment)
    return owner["uid"] if owner else "", int(deployment["spec"]["replicas"])


def _is_change_of_spec(model: dict[str, Any]) -> bool:
    """Whether the status is about an older generation."""
    return bool(model.get("status", {}).get("observedGeneration") != model["metadata"].get("generation"))
