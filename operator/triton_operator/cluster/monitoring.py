"""The cluster's monitoring: which Prometheuses there are."""

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

from .api import ApiError, KubernetesApi

_log = logging.getLogger(__name__)
PROMETHEUSES = Kind("monitoring.coreos.com", "v1", "Prometheus", "prometheuses", optional=True)
NAMESPACES = Kind("", "v1", "Namespace", "namespaces")
FRESH_SECONDS = 60.0
"""How long a listing of Prometheuses and namespaces is taken as still true."""
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PATH = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*")
"""No segment is `.` or `..`, and none begins a query."""


class Monitoring:
    """What the reconciler asks of the cluster's monitoring. Safe to use from several threads.

    `url`: a Prometheus to ask, instead of the ones that the cluster has as resources. `namespaces`: where their
    resources count. Whoever writes one there chooses whom the operator asks, and what it believes about every
    TritonModel.
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
        self._looking = threading.Lock()
        self._installed, self._at = Installed(), float("-inf")
        self._last_read: tuple[Any, Any] | None = None

    def installed(self) -> Installed:
        """The cluster's Prometheuses, a minute old at most; older, or none, where the API server doesn't tell.
        Never raises."""
        with self._looking:
            if self._clock() - self._at > FRESH_SECONDS:
                self._installed, self._at = self._look(), self._clock()
            return self._installed

    def changed(self, namespaces: set[str]) -> bool:
        """Whether it matters to objects in these namespaces what has changed since this was asked before."""
        found = self.installed()
        before, self._last_read = (
            self._last_read,
            (found.prometheuses, {n: found.namespaces.get(n) for n in namespaces}),
        )
        return self._last_read != before

    def forget(self) -> None:
        """Looks anew when asked next."""
        with self._looking:
            self._at = float("-inf")

    def _look(self) -> Installed:
        try:
            listed = chain.from_iterable(self._api.list(PROMETHEUSES, namespace) for namespace in self._namespaces)
            found = (one for obj in listed if (one := _prometheus(obj)))
            prometheuses = tuple(sorted(found, key=lambda p: p.url))
            namespaces = {n["metadata"]["name"]: n["metadata"].get("labels", {}) for n in self._api.list(NAMESPACES)}
        except ApiError as error:
            if error.code == 403:
                return Installed()
            if error.code == 404:
                return Installed((), looked_in=self._namespaces)
            _log.warning("which Prometheuses there are isn't known: %s", error.message)
            return self._installed
        return Installed(prometheuses, namespaces, self._namespaces)


def _prometheus(obj: dict[str, Any]) -> Prometheus | None:
    """None where the resource names a host or a path that can't be part of a URL."""
    spec, metadata = obj.get("spec") or {}, obj["metadata"]
    scheme = "https" if (spec.get("web") or {}).get("tlsConfig") else "http"
    # The Service that prometheus-operator itself makes, one in a namespace.
    host = spec.get("serviceName") or "prometheus-operated"
    prefix = (spec.get("routePrefix") or "").rstrip("/")
    if not (_DNS_LABEL.fullmatch(host) and _PATH.fullmatch(prefix)):
        _log.warning(
            "the Prometheus %s/%s isn't asked: spec.serviceName must be a DNS label, and spec.routePrefix a path of "
            "letters, digits, '.', '_', '~' and '-'",
            metadata["namespace"], metadata["name"],
        )  # fmt: skip
        return None
    return Prometheus(
        metadata["namespace"],
        metadata["name"],
        f"{scheme}://{host}.{metadata['namespace']}.svc:9090{prefix}",
        Selection(spec.get("ruleSelector"), spec.get("ruleNamespaceSelector")),
        Selection(spec.get("podMonitorSelector"), spec.get("podMonitorNamespaceSelector")),
    )
