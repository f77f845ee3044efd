"""Prometheus as it answers, fails, hangs and lies; and which ones a cluster has."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.fake_prometheus import FakePrometheus, sample
from triton_operator.api.monitoring import Answer, Installed, Selection
from triton_operator.api.thresholds import Slot
from triton_operator.cluster import monitoring
from triton_operator.cluster.api import ApiError
from triton_operator.cluster.monitoring import Monitoring

QPS = Slot("max-qps")


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    fake = FakePrometheus()
    yield fake
    fake.close()


def monitor(api: Any = None, clock: Any = time.monotonic) -> Monitoring:
    return Monitoring(api, clock=clock)


THRESHOLDS = 'triton:threshold{namespace="vision",tritonmodel="detection"}'
TOKENS = 'count({namespace="vision",tritonmodel="detection",__name__="tokens_total"})'


def test_an_answer(prometheus: FakePrometheus) -> None:
    prometheus.series[THRESHOLDS] = [
        sample("80", kind="max-qps"), sample("+Inf", kind="max-tps"), sample("12.5", kind="max-qps", version="2"),
    ]  # fmt: skip
    answer = monitor().ask(prometheus.url, "vision", "detection")
    assert answer == Answer({QPS: 80, Slot("max-tps"): math.inf, Slot("max-qps", "2"): 12.5})
    assert prometheus.queries == [THRESHOLDS]


@pytest.mark.parametrize("found", [True, False])
def test_whether_there_are_tokens(prometheus: FakePrometheus, found: bool) -> None:
    prometheus.series[TOKENS] = [{"metric": {}, "value": [1.0, "3"]}] if found else []
    assert monitor().ask(prometheus.url, "vision", "detection", "tokens_total").tokens is found


def test_no_series_is_an_answer_too(prometheus: FakePrometheus) -> None:
    assert monitor().ask(prometheus.url, "vision", "detection") == Answer()


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (500, "request 4711 failed at 12:00", ": HTTP Status Code 500"),
        (422, '{"status":"error","error":"x"}', ": HTTP Status Code 422"),
        (302, "", ": HTTP Status Code 302"),
        (200, "<html>hello</html>", "is no Prometheus"),
        (200, "[]", "is no Prometheus"),
        (200, "null", "is no Prometheus"),
        (200, "{}", "is no Prometheus"),
        (200, '{"data": {"result": [{}]}}', "is no Prometheus"),
        (200, '{"data": {"result": [1]}}', "is no Prometheus"),
        (200, '{"data": {"result": 7}}', "is no Prometheus"),
        (200, '{"data": {"result": [{"metric": {"kind": "max-qps"}, "value": []}]}}', "is no Prometheus"),
        (200, '{"data": {"result": [{"metric": {"kind": "max-qps"}, "value": [1, null]}]}}', "is no Prometheus"),
        (200, '{"data": {"result": [{"metric": {"kind": "max-qps"}, "value": [1, "many"]}]}}', "many"),
    ],
)
def test_what_is_no_answer_is_told_in_words_that_stay(
    prometheus: FakePrometheus, status: int, body: str, words: str
) -> None:
    prometheus.status, prometheus.body = status, body
    answer = monitor().ask(prometheus.url, "vision", "detection")
    assert answer.values == {}
    assert answer.error.endswith(words) or words in answer.error
    assert prometheus.url in answer.error
    assert "4711" not in answer.error
    assert monitor().ask(prometheus.url, "vision", "detection") == answer


def test_one_that_hangs_is_waited_for_only_so_long_and_not_at_once_again(
    prometheus: FakePrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring, "TIMEOUT_SECONDS", 0.3)
    prometheus.hang = 1.0
    now = 0.0
    one = monitor(clock=lambda: now)
    started = time.monotonic()
    answer = one.ask(prometheus.url, "vision", "detection")
    assert 0.2 < time.monotonic() - started < 0.9
    assert "timed out" in answer.error
    started = time.monotonic()
    assert one.ask(prometheus.url, "vision", "other") == answer
    assert time.monotonic() - started < 0.1
    prometheus.hang = 0
    now = monitoring.SPARED_SECONDS + 1
    assert one.ask(prometheus.url, "vision", "detection") == Answer()


def test_one_that_is_not_there() -> None:
    first = monitor().ask("http://127.0.0.1:9", "vision", "detection").error
    assert first.startswith("Prometheus doesn't answer at http://127.0.0.1:9: ")
    assert "0x" not in first
    assert "refused" in first
    assert monitor().ask("http://no.such.host.invalid:9", "vision", "detection").error


# Which ones there are


class Cluster:
    """An API server that has these Prometheuses, or refuses with `code`."""

    def __init__(self, *prometheuses: dict[str, Any]) -> None:
        self.prometheuses, self.code, self.asked = prometheuses, 0, 0

    def list(self, kind: Any) -> Iterator[dict[str, Any]]:
        self.asked += 1
        if self.code:
            raise ApiError(self.code, "", "no")
        if kind == monitoring.NAMESPACES:
            return iter([{"metadata": {"name": "vision", "labels": {"a": "b"}}}, {"metadata": {"name": "bare"}}])
        return iter(self.prometheuses)


def resource(name: str = "k8s", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "monitoring", "name": name}, "spec": spec}


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


def test_what_a_prometheus_selects() -> None:
    spec = {"ruleSelector": {}, "podMonitorSelector": {"matchLabels": {"a": "b"}}, "podMonitorNamespaceSelector": {}}
    installed = monitor(Cluster(resource(**spec))).installed()
    (found,) = installed.prometheuses or ()
    assert (found.namespace, found.name) == ("monitoring", "k8s")
    assert found.rules == Selection({}, None)
    assert found.pod_monitors == Selection({"matchLabels": {"a": "b"}}, {})
    assert installed.namespaces == {"vision": {"a": "b"}, "bare": {}}


@pytest.mark.parametrize(("code", "expected"), [(403, Installed(None)), (404, Installed(())), (500, Installed())])
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
