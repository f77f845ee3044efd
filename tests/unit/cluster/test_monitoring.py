"""Finds the Prometheus resources of a cluster and reports when they change."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.api import MIN_WAIT_SECONDS
from triton_operator.api.monitoring import Installed, Selection
from triton_operator.cluster import monitoring
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.monitoring import Monitoring


def monitor(api: Any = None, clock: Any = time.monotonic, **more: Any) -> Monitoring:
    return Monitoring(api, clock=clock, **more)


class SimulatedApi:
    """An API server with these Prometheus resources. If `code` is set, it answers with this error."""

    def __init__(self, *prometheuses: dict[str, Any]) -> None:
        self.prometheuses, self.code, self.lists = prometheuses, 0, 0

    def list(self, kind: Any, namespace: str | None = None) -> Iterator[dict[str, Any]]:
        self.lists += 1
        if self.code:
            raise ApiError(self.code, "", "no")
        if kind == monitoring.NAMESPACES:
            return iter([{"metadata": {"name": "vision", "labels": {"a": "b"}}}, {"metadata": {"name": "bare"}}])
        return (prometheus for prometheus in self.prometheuses if prometheus["metadata"]["namespace"] == namespace)


def resource(name: str = "k8s", namespace: str = "monitoring", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "url"),
    [
        ({}, "http://prometheus-operated.monitoring.svc:9090"),
        ({"serviceName": "own"}, "http://own.monitoring.svc:9090"),
        ({"routePrefix": "/"}, "http://prometheus-operated.monitoring.svc:9090"),
        ({"routePrefix": "/prometheus/"}, "http://prometheus-operated.monitoring.svc:9090/prometheus"),
        ({"web": {"tlsConfig": {"cert": {}}}}, "https://prometheus-operated.monitoring.svc:9090"),
        ({"web": {"pageTitle": "x"}}, "http://prometheus-operated.monitoring.svc:9090"),
    ],
)
def test_computes_the_url_of_a_prometheus(spec: dict[str, Any], url: str) -> None:
    installed = monitor(SimulatedApi(resource(**spec))).installed()
    assert [p.url for p in installed.prometheuses or ()] == [url]


def test_reads_whether_a_prometheus_is_paused() -> None:
    installed = monitor(SimulatedApi(resource("a"), resource("b", paused=True))).installed()
    assert {p.name: p.paused for p in installed.prometheuses or ()} == {"a": False, "b": True}


@pytest.mark.parametrize(
    "spec",
    [
        {"serviceName": "127.0.0.1:29555/latest/meta-data?x="},
        {"serviceName": "user@host"},
        {"serviceName": "other.kube-system"},
        {"serviceName": "UPPER"},
        {"serviceName": "a" * 64},
        {"serviceName": "own\n"},
        {"routePrefix": "/../../admin"},
        {"routePrefix": "/a?b="},
        {"routePrefix": "/a#"},
        {"routePrefix": "@evil"},
        {"routePrefix": "/a/%2e%2e"},
        {"routePrefix": "//evil"},
    ],
)
def test_ignores_a_prometheus_whose_url_could_point_elsewhere(spec: dict[str, Any]) -> None:
    assert monitor(SimulatedApi(resource(**spec), resource("good"))).installed().prometheuses == (
        monitor(SimulatedApi(resource("good"))).installed().prometheuses
    )


def test_lists_prometheuses_only_in_the_chosen_namespaces() -> None:
    cluster = SimulatedApi(resource(), resource("mine", "tenant"), resource("other", "observability"))

    def names_in(*namespaces: str) -> list[str]:
        installed = monitor(cluster, namespaces=namespaces).installed()
        assert installed.searched == tuple(sorted(namespaces))
        return [p.name for p in installed.prometheuses or ()]

    assert [p.name for p in monitor(cluster).installed().prometheuses or ()] == ["k8s"]
    assert names_in("observability", "monitoring") == ["k8s", "other"]
    assert names_in() == []


def test_reads_the_selectors_of_a_prometheus() -> None:
    spec = {"ruleSelector": {}, "podMonitorSelector": {"matchLabels": {"a": "b"}}, "podMonitorNamespaceSelector": {}}
    installed = monitor(SimulatedApi(resource(**spec))).installed()
    (prometheus,) = installed.prometheuses or ()
    assert (prometheus.namespace, prometheus.name) == ("monitoring", "k8s")
    assert prometheus.rules == Selection({}, None)
    assert prometheus.pod_monitors == Selection({"matchLabels": {"a": "b"}}, {})
    assert installed.namespaces == {"vision": {"a": "b"}, "bare": {}}


@pytest.mark.parametrize(
    ("code", "expected"), [(403, Installed(None)), (404, Installed((), searched=("monitoring",))), (500, Installed())]
)
def test_reports_what_it_could_not_list(code: int, expected: Installed) -> None:
    cluster = SimulatedApi(resource())
    cluster.code = code
    assert monitor(cluster).installed() == expected


def test_caches_the_listing_and_keeps_it_during_an_outage() -> None:
    now, cluster = 0.0, SimulatedApi(resource())
    lister = monitor(cluster, lambda: now)
    first = lister.installed()
    assert lister.installed() is first
    assert cluster.lists == 2  # Prometheuses and namespaces
    now = monitoring.FRESH_SECONDS + 1
    cluster.code = 503
    assert lister.installed() == first
    cluster.code = 0
    cluster.prometheuses = ()
    assert lister.installed() == first  # reads the cache, so that not every reconcile sends a request
    lister.forget()
    assert lister.installed().prometheuses == ()


def test_reports_changes_only_for_the_given_namespaces() -> None:
    now, cluster = 0.0, SimulatedApi()
    lister = monitor(cluster, clock=lambda: now)

    def changed(*namespaces: str) -> bool:
        nonlocal now
        now += monitoring.FRESH_SECONDS + 1
        return lister.changed(set(namespaces))

    assert [changed("vision"), changed("vision")] == [True, False]
    cluster.prometheuses = (resource(),)
    assert [changed("vision"), changed("vision")] == [True, False]
    assert [changed("vision", "bare"), changed("vision", "bare")] == [True, False]
    now -= monitoring.FRESH_SECONDS + 1
    cluster.prometheuses = ()
    assert not changed("vision", "bare")  # the last listing is still fresh


class HangingApi(SimulatedApi):
    """An API server that answers only after `answer` is set. `asked`: a request has arrived."""

    def __init__(self) -> None:
        super().__init__(resource())
        self.asked, self.answer = threading.Event(), threading.Event()

    def list(self, kind: Any, namespace: str | None = None) -> Iterator[dict[str, Any]]:
        self.asked.set()
        assert self.answer.wait(MIN_WAIT_SECONDS)
        return super().list(kind, namespace)


def test_forgets_while_a_listing_waits_for_the_api_server() -> None:
    api = HangingApi()
    lister = monitor(api)
    listing, forgetting = threading.Thread(target=lister.installed), threading.Thread(target=lister.forget)
    try:
        listing.start()
        assert api.asked.wait(MIN_WAIT_SECONDS)
        forgetting.start()
        forgetting.join(MIN_WAIT_SECONDS / 2)
        assert not forgetting.is_alive(), "the event loop calls forget, and would wait for the API server"
    finally:
        api.answer.set()
        listing.join(MIN_WAIT_SECONDS)
    # The listing began before `forget`, so it may not know what has changed since.
    before = api.lists
    assert lister.installed().prometheuses
    assert api.lists > before
    before = api.lists
    assert lister.installed().prometheuses
    assert api.lists == before
