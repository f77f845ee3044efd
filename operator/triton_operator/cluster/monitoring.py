"""Finds the Prometheuses of the cluster."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
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
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PATH = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*")
"""Allows no segment `.` or `..`, and no query."""


class MonitoringResources:
    """The cluster's Prometheuses and namespaces at the last `refresh`, as `installed`.

    `namespaces`: the namespaces whose Prometheus resources the operator uses. Users who may create a Prometheus
    resource there decide which server the operator queries, and what it reports about every TritonModel.
    """

    def __init__(self, api: KubernetesApi, namespaces: Collection[str] = (names.PROMETHEUS_NAMESPACE,)) -> None:
        self._api, self._namespaces = api, tuple(sorted(set(namespaces)))
        self.installed = Installed(answered=False)

    def refresh(self) -> None:
        """Lists the Prometheuses and the namespaces. If the API server fails, those of the last listing stay."""
        try:
            objects = chain.from_iterable(self._api.list(PROMETHEUSES, namespace) for namespace in self._namespaces)
            servers = (server for obj in objects if (server := _prometheus(obj)))
            prometheuses = tuple(sorted(servers, key=lambda server: server.url))
            listed = self._api.list(NAMESPACES, metadata=True)
            namespaces = {n["metadata"]["name"]: n["metadata"].get("labels", {}) for n in listed}
        except ApiError as error:
            self.installed = self._without(error)
        else:
            self.installed = Installed(prometheuses, namespaces, self._namespaces)

    def _without(self, error: ApiError) -> Installed:
        """Returns what is known after a listing that has failed."""
        if error.code == 403:
            return Installed()
        if error.code == 404:
            return Installed((), searched=self._namespaces)
        _log.warning("could not list the Prometheuses and namespaces, using the last known ones: %s", error.message)
        return Installed(answered=False) if self.installed.prometheuses is None else self.installed


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
