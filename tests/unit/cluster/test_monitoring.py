"""Finds the Prometheus resources of a cluster and reports when they change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from triton_operator.api.monitoring import Installed, Selection
from triton_operator.cluster import monitoring
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.monitoring import MonitoringResources


def read(api: Any, **more: Any) -> Installed:
    """Returns what the operator knows after one listing."""
    monitoring = MonitoringResources(api, **more)
    monitoring.refresh()
    return monitoring.installed


class SimulatedApi:
    """An API server with these Prometheus resources. If `code` is set, it answers with this error."""

    def __init__(self, *prometheuses: dict[str, Any]) -> None:
        self.prometheuses, self.code, self.lists = prometheuses, 0, 0

    def list(self, kind: Any, namespace: str | None = None, *, metadata: bool = False) -> Iterator[dict[str, Any]]:
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
    installed = read(SimulatedApi(resource(**spec)))
    assert [p.url for p in installed.prometheuses or ()] == [url]


def test_reads_whether_a_prometheus_is_paused() -> None:
    installed = read(SimulatedApi(resource("a"), resource("b", paused=True)))
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
    assert read(SimulatedApi(resource(**spec), resource("good"))).prometheuses == (
        read(SimulatedApi(resource("good"))).prometheuses
    )


def test_lists_prometheuses_only_in_the_chosen_namespaces() -> None:
    cluster = SimulatedApi(resource(), resource("mine", "tenant"), resource("other", "observability"))

    def names_in(*namespaces: str) -> list[str]:
        installed = read(cluster, namespaces=namespaces)
        assert installed.searched == tuple(sorted(namespaces))
        return [p.name for p in installed.prometheuses or ()]

    assert [p.name for p in read(cluster).prometheuses or ()] == ["k8s"]
    assert names_in("observability", "monitoring") == ["k8s", "other"]
    assert names_in() == []


def test_reads_the_selectors_of_a_prometheus() -> None:
    spec = {"ruleSelector": {}, "podMonitorSelector": {"matchLabels": {"a": "b"}}, "podMonitorNamespaceSelector": {}}
    installed = read(SimulatedApi(resource(**spec)))
    (prometheus,) = installed.prometheuses or ()
    assert (prometheus.namespace, prometheus.name) == ("monitoring", "k8s")
    assert prometheus.rules == Selection({}, None)
    assert prometheus.pod_monitors == Selection({"matchLabels": {"a": "b"}}, {})
    assert installed.namespaces == {"vision": {"a": "b"}, "bare": {}}


@pytest.mark.parametrize(
    ("code", "expected"),
    [(403, Installed(None)), (404, Installed((), searched=("monitoring",))), (500, Installed(answered=False))],
)
def test_reports_what_it_could_not_list(code: int, expected: Installed) -> None:
    cluster = SimulatedApi(resource())
    cluster.code = code
    assert read(cluster) == expected


def test_keeps_what_it_knows_while_the_api_server_fails() -> None:
    cluster: Any = SimulatedApi(resource())
    subject = MonitoringResources(cluster)
    cluster.code = 503
    subject.refresh()
    assert subject.installed == Installed(answered=False), "nothing is known yet"
    cluster.code = 0
    subject.refresh()
    first = subject.installed
    assert [p.name for p in first.prometheuses or ()] == ["k8s"]
    cluster.code = 503
    subject.refresh()
    assert subject.installed == first


def test_a_change_concerns_only_the_namespaces_that_it_may_select() -> None:
    before = read(SimulatedApi(resource()))
    assert not before.differs(read(SimulatedApi(resource())), "vision")
    more = read(SimulatedApi(resource(), resource("another")))
    assert [before.differs(more, namespace) for namespace in ("vision", "bare", "unknown")] == [True] * 3
    labelled = replace(before, namespaces={**before.namespaces, "vision": {"a": "c"}, "new": {}})
    assert [n for n in ("vision", "bare", "new", "unknown") if before.differs(labelled, n)] == ["vision", "new"]
