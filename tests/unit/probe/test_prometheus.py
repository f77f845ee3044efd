"""A Prometheus that answers, fails, hangs and lies."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Iterator

import pytest

from support import bad_servers
from support.fake_prometheus import THRESHOLDS, FakePrometheus, sample
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.probe import prometheus as prometheus_module
from triton_operator.probe.prometheus import Client, QueryError

KEY, OWN = "vision/detection", {"namespace": "vision", "tritonmodel": "detection"}
QPS = ThresholdKey("max-qps")


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    fake = FakePrometheus()
    yield fake
    fake.close()


def failure(url: str) -> str:
    with pytest.raises(QueryError) as error:
        Client(url).thresholds()
    return str(error.value)


def test_thresholds(prometheus: FakePrometheus) -> None:
    prometheus.series[THRESHOLDS] = [
        sample("80", kind="max-qps", **OWN),
        sample("+Inf", kind="max-tps", **OWN),
        sample("12.5", kind="max-qps", version="2", **OWN),
        sample("7", kind="max-qps", namespace="vision", tritonmodel="other"),
        sample("1", kind="of others"),
    ]
    assert Client(prometheus.url).thresholds() == {
        KEY: {QPS: 80, ThresholdKey("max-tps"): math.inf, ThresholdKey("max-qps", "2"): 12.5},
        "vision/other": {QPS: 7},
    }
    assert prometheus.queries == [THRESHOLDS]


def test_an_operator_of_some_namespaces_asks_for_these(prometheus: FakePrometheus) -> None:
    Client(prometheus.url, ("vision", "speech")).thresholds()
    assert prometheus.queries == ['triton:threshold{tritonmodel!="",namespace=~"speech|vision"}']


def test_counters_are_asked_for_together(prometheus: FakePrometheus) -> None:
    query = 'count by (namespace,tritonmodel,__name__) ({__name__=~"a_total|b_total",tritonmodel!=""})'
    prometheus.series[query] = [{"metric": {"__name__": "a_total", **OWN}, "value": [1.0, "3"]}]
    assert Client(prometheus.url).counters(["b_total", "a_total", "b_total"]) == {(KEY, "a_total")}
    assert prometheus.queries == [query]
    Client(prometheus.url).counters(f"c{n}" for n in range(120))
    assert len(prometheus.queries) == 1 + 3, "in parts, where there are many"
    assert Client(prometheus.url).counters([]) == frozenset()
    assert len(prometheus.queries) == 1 + 3


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
        (200, "[" * 100_000, "is no Prometheus"),
        (200, '{"data": {"result": [{}]}}', "is no Prometheus"),
        (200, '{"data": {"result": [1]}}', "is no Prometheus"),
        (200, '{"data": {"result": 7}}', "is no Prometheus"),
        (200, '{"data": {"result": [{"metric": {}, "value": []}]}}', "is no Prometheus"),
        (200, '{"data": {"result": [{"metric": {}, "value": [1, null]}]}}', "is no Prometheus"),
        (200, '{"data": {"result": [{"metric": {}, "value": [1, "many"]}]}}', "many"),
    ],
)
def test_what_is_no_answer_is_told_in_words_that_stay(
    prometheus: FakePrometheus, status: int, body: str, words: str
) -> None:
    prometheus.status, prometheus.body = status, body
    first = failure(prometheus.url)
    assert words in first
    assert prometheus.url in first
    assert "4711" not in first
    assert failure(prometheus.url) == first


def test_one_that_hangs_trickles_or_floods_is_left(prometheus: FakePrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_module, "TIMEOUT_SECONDS", 0.5)
    started = time.monotonic()
    prometheus.hang = 30
    assert "timed out" in failure(prometheus.url)
    prometheus.hang, prometheus.body, prometheus.trickle = 0, "[" * 300, 0.1
    assert "no end of the answer" in failure(prometheus.url)
    prometheus.body, prometheus.trickle = "[" * (5 << 20), 0
    assert "no end of the answer" in failure(prometheus.url)
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("behave", [bad_servers.redirects("/"), bad_servers.floods, bad_servers.compresses])
def test_an_answer_without_an_end_takes_little_memory(
    behave: bad_servers.Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus_module, "TIMEOUT_SECONDS", 1.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with bad_servers.server("127.0.0.1", behave, 0) as served:
        assert failure(f"http://{served.address}")
    # `compresses` itself takes 64 MiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < (200 << 10)


def test_one_that_is_not_there() -> None:
    first = failure("http://127.0.0.1:9")
    assert first.startswith("Prometheus doesn't answer at http://127.0.0.1:9: ")
    assert "0x" not in first
    assert "refused" in first
    assert failure("http://no.such.host.invalid:9")
