"""Finds the Prometheuses of the cluster."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Collection
from itertools import chain
from typing import Any

from triton_operator.api import names
from triton_operator.api.kinds import Kind
from triton_operator.api.monitoring import Installed, Prometheus, Selection

from .api import KubernetesApi
from .errors import ApiError

_log = logging.getLogger(__name__)
PROMETHEUSES = Kind("monitoring.coreos.com", "v1", "Prometheus", "prometheuses", optional=True)
NAMESPACES = Kind("", "v1", "Namespace", "namespaces")
FRESH_SECONDS = 60.0
"""How long a listing of Prometheuses and namespaces is cached."""
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PATH = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*")
"""Allows no segment `.` or `..`, and no query."""


class Monitoring:
    """Caches the cluster's Prometheuses and namespaces. Safe to use from several threads.

    - `url`: a Prometheus to query instead of the cluster's Prometheus resources.
    - `namespaces`: the namespaces whose Prometheus resources the operator uses. Users who may create a Prometheus
      resource there decide which server the operator queries, and what it reports about every TritonModel.
    """

    def __init__(
        self,
        api: KubernetesApi,
        url: str = "",
        namespaces: Collection[str] = (names.PROMETHEUS_NAMESPACE,),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url, self._namespaces = url.rstrip("/"), tuple(sorted(set(namespaces)))
        self._api, self._clock = api, clock
        self._lock, self._listing = threading.Lock(), threading.Lock()
        self._installed, self._at, self._forgotten = Installed(), float("-inf"), 0
        self._last_read: tuple[Any, Any] | None = None

    def installed(self) -> Installed:
        """Returns the cluster's Prometheuses, at most a minute old. Never raises.

        Returns the last known ones if the API server fails, and none if it forbids the request.
        """
        if (installed := self._fresh()) is not None:
            return installed
        # One thread lists, and the others wait for its result. The event loop takes only `_lock`.
        with self._listing:
            if (installed := self._fresh()) is not None:
                return installed
            began = self._forgotten
            installed = self._list()
            with self._lock:
                self._installed = installed
                if self._forgotten == began:
                    self._at = self._clock()
            return installed

    def _fresh(self) -> Installed | None:
        """Returns the last listing; None if it is too old."""
        with self._lock:
            return self._installed if self._clock() - self._at <= FRESH_SECONDS else None

    def changed(self, namespaces: set[str]) -> bool:
        """Returns whether the Prometheuses or the labels of these namespaces have changed since the last call."""
        installed = self.installed()
        before, self._last_read = (
            self._last_read,
            (installed.prometheuses, {n: installed.namespaces.get(n) for n in namespaces}),
        )
        return self._last_read != before

    def forget(self) -> None:
        """Discards the cached listing, and one that is being read. Never waits."""
        with self._lock:
            self._at, self._forgotten = float("-inf"), self._forgotten + 1

    def _list(self) -> Installed:
        try:
            objects = chain.from_iterable(self._api.list(PROMETHEUSES, namespace) for namespace in self._namespaces)
            servers = (server for obj in objects if (server := _prometheus(obj)))
            prometheuses = tuple(sorted(servers, key=lambda server: server.url))
            namespaces = {n["metadata"]["name"]: n["metadata"].get("labels", {}) for n in self._api.list(NAMESPACES)}
        except ApiError as error:
            if error.code == 403:
                return Installed()
            if error.code == 404:
                return Installed((), searched=self._namespaces)
            _log.warning("could not list the Prometheuses and namespaces, using the last known ones: %s", error.message)
            return self._installed
        return Installed(prometheuses, namespaces, self._namespaces)


def _prometheus(obj: dict[str, Any]) -> Prometheus | None:
    """Returns the Prometheus of a resource; None if its host or path can't be part of a URL."""
    spec, metadata = obj.get("spec") or {}, obj["metadata"]
    scheme = "https" if (spec.get("web") or {}).get("tlsConfig") else "http"
    # The default is the Service that prometheus-operator creates in each namespace.
    host = spec.get("serviceName") or "prometheus-operated"
    prefix = (spec.get("routePrefix") or "").rstrip("/")
    if not (_DNS_LABEL.fullmatch(host) and _PATH.fullmatch(prefix)):
        _log.warning(
            "the operator doesn't query the Prometheus %s/%s: spec.serviceName must be a DNS label, and "
            "spec.routePrefix a path of letters, digits, '.', '_', '~' and '-'",
            metadata["namespace"], metadata["name"],
        )  # fmt: skip
        return None
    return Prometheus(
        metadata["namespace"],
        metadata["name"],
        f"{scheme}://{host}.{metadata['namespace']}.svc:9090{prefix}",
        Selection(spec.get("ruleSelector"), spec.get("ruleNamespaceSelector")),
        Selection(spec.get("podMonitorSelector"), spec.get("podMonitorNamespaceSelector")),
        paused=bool(spec.get("paused")),
    )
