"""Polls what the cluster has, so that no reconcile has to request it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from triton_operator.api import kubernetes_versions
from triton_operator.api.kinds import Kind
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.monitoring import MonitoringResources
from triton_operator.cluster.nodes import Nodes
from triton_operator.reconcile import Cluster

from .listing import Listing, has_monitoring
from .settings import Settings

_log = logging.getLogger(__name__)
_NODES_SECONDS = 600
"""Interval between listings of the nodes: only a new TritonModel needs them, and their runtimes seldom change."""


class Discovery:
    """Polls the cluster's version and optional kinds, and, while this replica leads, its Prometheuses and nodes.

    - `leads`: returns whether this replica leads and has listed all objects.
    - `on_kinds`: called when the optional kinds have changed.
    - `on_monitoring(concerns)`: called when the Prometheuses have changed. `concerns(namespace)`: whether they may
      select something else there.
    """

    def __init__(
        self,
        api: KubernetesApi,
        listing: Listing,
        settings: Settings,
        leads: Callable[[], bool],
        on_kinds: Callable[[], None],
        on_monitoring: Callable[[Callable[[str], bool]], None],
    ) -> None:
        self._listing, self._leads, self._on_kinds, self._on_monitoring = listing, leads, on_kinds, on_monitoring
        self._seconds, self._url = settings.discovery_seconds, settings.prometheus_url.rstrip("/")
        self._monitoring = MonitoringResources(api, settings.prometheus_namespaces)
        self._nodes, self._nodes_at = Nodes(api), 0.0
        self._now = asyncio.Event()

    def cluster(self) -> Cluster:
        """Returns what is known. Sends no request."""
        return Cluster(
            self._listing.capabilities(),
            self._nodes.delivery,
            self._monitoring.installed,
            self._url,
            self._listing.refused_kinds,
        )

    async def discover(self) -> bool:
        """Discovers the version and the optional kinds, and reads the Prometheuses that reconciles need with them.

        Returns whether the kinds have changed. Raises ApiError.
        """
        listing = self._listing
        version = await asyncio.to_thread(listing.discover_version)
        if version != listing.kubernetes:
            listing.kubernetes = version
            _tell_version(version)
        served = await asyncio.to_thread(listing.discover)
        if self._leads():
            await self._refresh_monitoring(served)
        before, listing.served = listing.served, served
        return before != served

    async def prepare(self) -> None:
        """Reads what the first reconcile needs to know. Raises ApiError."""
        await asyncio.to_thread(self._refresh_nodes)
        await self._refresh_monitoring(self._listing.served)
        _log.info("delivery Auto means %s on this cluster", self._nodes.delivery)

    async def run(self) -> None:
        """Polls until it is cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    await self._now.wait()
            self._now.clear()
            try:
                await self._poll()
            except ApiError as error:
                _log.warning("could not discover what the cluster has: %s", error.message)

    def poll_now(self) -> None:
        """Polls without waiting."""
        self._now.set()

    async def _poll(self) -> None:
        before = self._monitoring.installed
        if await self.discover():
            kinds = ", ".join(sorted(kind.kind for kind in self._listing.served)) or "none"
            _log.info("optional kinds of the cluster: %s", kinds)
            self._on_kinds()
        if (after := self._monitoring.installed) != before:
            self._on_monitoring(lambda namespace: before.differs(after, namespace))
        if self._leads() and time.monotonic() - self._nodes_at > _NODES_SECONDS:
            await asyncio.to_thread(self._refresh_nodes)

    async def _refresh_monitoring(self, served: frozenset[Kind]) -> None:
        if has_monitoring(served):
            await asyncio.to_thread(self._monitoring.refresh)

    def _refresh_nodes(self) -> None:
        self._nodes.refresh()
        self._nodes_at = time.monotonic()


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
