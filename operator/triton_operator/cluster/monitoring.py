"""The cluster's monitoring: which Prometheuses there are, and what they say."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests.exceptions import JSONDecodeError, RequestException
from urllib3.util.retry import Retry

from triton_operator.api.kinds import Kind
from triton_operator.api.monitoring import Answer, Installed, Prometheus, Selection
from triton_operator.api.thresholds import Slot

from .api import ApiError, KubernetesApi

_log = logging.getLogger(__name__)
PROMETHEUSES = Kind("monitoring.coreos.com", "v1", "Prometheus", "prometheuses", optional=True)
NAMESPACES = Kind("", "v1", "Namespace", "namespaces")
TIMEOUT_SECONDS = 3
SPARED_SECONDS = 10.0
"""How long a Prometheus that didn't answer isn't asked again: every pass would wait for it."""
FRESH_SECONDS = 60.0
"""How long a listing of Prometheuses and namespaces is taken as still true."""


class Monitoring:
    """What the reconciler asks of the cluster's monitoring. Safe to use from several threads.

    `url`: a Prometheus to ask, instead of the ones that the cluster has as resources.
    """

    def __init__(self, api: KubernetesApi, url: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self.url = url.rstrip("/")
        self._api, self._clock = api, clock
        self._looking, self._lock = threading.Lock(), threading.Lock()
        self._installed, self._at = Installed(), float("-inf")
        self._told: tuple[Any, Any] | None = None
        self._clients: dict[str, PrometheusConnect] = {}
        self._silent: dict[str, tuple[float, Answer]] = {}

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
        before, self._told = self._told, (found.prometheuses, {n: found.namespaces.get(n) for n in namespaces})
        return self._told != before

    def forget(self) -> None:
        """Looks anew when asked next."""
        with self._looking:
            self._at = float("-inf")

    def ask(self, url: str, namespace: str, name: str, token_counter: str = "") -> Answer:
        """What the Prometheus at `url` says of the TritonModel `namespace`/`name`. Never raises."""
        with self._lock:
            until, failure = self._silent.get(url, (float("-inf"), Answer()))
        if self._clock() < until:
            return failure
        answer = self._ask(url, namespace, name, token_counter)
        if answer.error:
            with self._lock:
                self._silent[url] = (self._clock() + SPARED_SECONDS, answer)
        return answer

    def _ask(self, url: str, namespace: str, name: str, token_counter: str) -> Answer:
        own = f'namespace="{namespace}",tritonmodel="{name}"'
        try:
            found = self._query(url, f"triton:threshold{{{own}}}")
            values = {Slot(r["metric"]["kind"], r["metric"].get("version", "")): float(r["value"][1]) for r in found}
            tokens = bool(token_counter) and bool(self._query(url, f'count({{{own},__name__="{token_counter}"}})'))
        except (JSONDecodeError, LookupError, TypeError, AttributeError):
            return Answer(error=f"what answers at {url} is no Prometheus")
        except (RequestException, PrometheusApiClientException, ValueError) as error:
            return Answer(error=f"Prometheus doesn't answer at {url}: {_why(error)}")
        return Answer(values, tokens)

    def _query(self, url: str, query: str) -> list[dict[str, Any]]:
        with self._lock:
            client = self._clients.get(url)
            if client is None:
                client = PrometheusConnect(url, retry=Retry(total=0), timeout=TIMEOUT_SECONDS)
                self._clients[url] = client
        found: list[dict[str, Any]] = client.custom_query(query)
        return found

    def _look(self) -> Installed:
        try:
            prometheuses = tuple(sorted(map(_prometheus, self._api.list(PROMETHEUSES)), key=lambda p: p.url))
            namespaces = {n["metadata"]["name"]: n["metadata"].get("labels", {}) for n in self._api.list(NAMESPACES)}
        except ApiError as error:
            if error.code == 403:
                return Installed()
            if error.code == 404:
                return Installed(())
            _log.warning("which Prometheuses there are isn't known: %s", error.message)
            return self._installed
        return Installed(prometheuses, namespaces)


def _prometheus(obj: dict[str, Any]) -> Prometheus:
    spec, metadata = obj["spec"], obj["metadata"]
    scheme = "https" if spec.get("web", {}).get("tlsConfig") else "http"
    # The Service that prometheus-operator itself makes, one in a namespace.
    host = spec.get("serviceName") or "prometheus-operated"
    prefix = spec.get("routePrefix", "/").rstrip("/")
    return Prometheus(
        metadata["namespace"],
        metadata["name"],
        f"{scheme}://{host}.{metadata['namespace']}.svc:9090{prefix}",
        Selection(spec.get("ruleSelector"), spec.get("ruleNamespaceSelector")),
        Selection(spec.get("podMonitorSelector"), spec.get("podMonitorNamespaceSelector")),
    )


def _why(error: Exception) -> str:
    """The failure without addresses of objects and counts of tries, which differ from one to the next."""
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    text = str(reason or error)
    # An answer's body may hold a time or the number of a request.
    status = re.match(r"HTTP Status Code \d+", text)
    return (status[0] if status else text.rpartition(">: ")[2][:300]) or type(error).__name__
