"""Which Prometheuses a cluster has."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from triton_operator.api.monitoring import Installed, Selection
from triton_operator.cluster import monitoring
from triton_operator.cluster.api import ApiError
from triton_operator.cluster.monitoring import Monitoring


def monitor(api: Any = None, clock: Any = time.monotonic, **more: Any) -> Monitoring:
    return Monitoring(api, clock=clock, **more)


class Cluster:
    """An API server that has these Prometheuses, or refuses with `code`."""

    def __init__(self, *prometheuses: dict[str, Any]) -> None:
        self.prometheuses, self.code, self.asked = prometheuses, 0, 0

    def list(self, kind: Any, namespace: str | None = None) -> Iterator[dict[str, Any]]:
        self.asked += 1
        if self.code:
            raise ApiError(self.code, "", "no")
        if kind == monitoring.NAMESPACES:
            return iter([{"metadata": {"name": "vision", "labels": {"a": "b"}}}, {"metadata": {"name": "bare"}}])
        return (one for one in self.prometheuses if one["metadata"]["namespace"] == namespace)


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
def test_where_a_prometheus_answers(spec: dict[str, Any], url: str) -> None:
    installed = monitor(Cluster(resource(**spec))).installed()
    assert [p.url for p in installed.prometheuses or ()] == [url]


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
def test_a_prometheus_whose_url_could_lead_elsewhere_is_left_out(spec: dict[str, Any]) -> None:
    assert monitor(Cluster(resource(**spec), resource("good"))).installed().prometheuses == (
        monitor(Cluster(resource("good"))).installed().prometheuses
    )


def test_prometheuses_count_in_the_chosen_namespaces_alone() -> None:
    cluster = Cluster(resource(), resource("mine", "tenant"), resource("other", "observability"))

    def found(*namespaces: str) -> list[str]:
        installed = monitor(cluster, namespaces=namespaces).installed()
        assert installed.looked_in == tuple(sorted(namespaces))
        return [p.name for p in installed.prometheuses or ()]

    assert [p.name for p in monitor(cluster).installed().prometheuses or ()] == ["k8s"]
    assert found("observability", "monitoring") == ["k8s", "other"]
    assert found() == []


def test_what_a_prometheus_selects() -> None:
    spec = {"ruleSelector": {}, "podMonitorSelector": {"matchLabels": {"a": "b"}}, "podMonitorNamespaceSelector": {}}
    installed = monitor(Cluster(resource(**spec))).installed()
    (found,) = installed.prometheuses or ()
    assert (found.namespace, found.name) == ("monitoring", "k8s")
    assert found.rules == Selection({}, None)
    assert found.pod_monitors == Selection({"matchLabels": {"a": "b"}}, {})
    assert installed.namespaces == {"vision": {"a": "b"}, "bare": {}}


@pytest.mark.parametrize(
    ("code", "expected"), [(403, Installed(None)), (404, Installed((), looked_in=("monitoring",))), (500, Installed())]
)
def test_what_the_api_server_does_not_tell(code: int, expected: Installed) -> None:
    cluster = Cluster(resource())
    cluster.code = code
    assert monitor(cluster).installed() == expected


def test_a_listing_is_fresh_for_a_while_and_outlives_an_outage() -> None:
    now, cluster = 0.0, Cluster(resource())
    one = monitor(cluster, lambda: now)
    first = one.installed()
    assert one.installed() is first
    assert cluster.asked == 2  # Prometheuses and namespaces
    now = monitoring.FRESH_SECONDS + 1
    cluster.code = 503
    assert one.installed() == first
    cluster.code = 0
    cluster.prometheuses = ()
    assert one.installed() == first  # it isn't asked at every pass, either
    one.forget()
    assert one.installed().prometheuses == ()


def test_only_what_matters_to_the_asked_namespaces_is_a_change() -> None:
    now, cluster = 0.0, Cluster()
    one = monitor(cluster, clock=lambda: now)

    def changed(*namespaces: str) -> bool:
        nonlocal now
        now += monitoring.FRESH_SECONDS + 1
        return one.changed(set(namespaces))

    assert [changed("vision"), changed("vision")] == [True, False]
    cluster.prometheuses = (resource(),)
    assert [changed("vision"), changed("vision")] == [True, False]
    assert [changed("vision", "bare"), changed("vision", "bare")] == [True, False]
    now -= monitoring.FRESH_SECONDS + 1
    cluster.prometheuses = ()
    assert not changed("vision", "bare")  # what was listed just now still counts
