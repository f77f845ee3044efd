"""Queries a Prometheus that answers, fails, hangs or returns invalid data."""

from __future__ import annotations

import asyncio
import gzip
import math
import resource
from collections.abc import Iterator

import pytest

from support import bad_servers, clock
from support.fake_prometheus import ALERTS, THRESHOLDS, FakePrometheus, sample
from triton_operator.api.monitoring import ServerFault
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.probe import fetch
from triton_operator.probe.fetch import Limits
from triton_operator.probe.prometheus import LIMITS, Alerts, Client, QueryError

KEY, OWN = "vision/detection", {"namespace": "vision", "tritonmodel": "detection"}
QPS = ThresholdKey("max-qps")


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    fake = FakePrometheus()
    yield fake
    fake.close()


def asking(url: str, *namespaces: str, limits: Limits = LIMITS) -> Client:
    """A client that fetches as the prober does: in an event loop, while the caller waits."""

    def get(address: str) -> bytes:
        async def within() -> bytes:
            http = fetch.HttpClient()
            return await asyncio.to_thread(fetch.blocking(http, limits), address, {})

        return asyncio.run(within())

    return Client(url, get, namespaces)


def failure(url: str, limits: Limits = LIMITS) -> str:
    with pytest.raises(QueryError) as error:
        asking(url, limits=limits).thresholds()
    return str(error.value)


def test_thresholds(prometheus: FakePrometheus) -> None:
    prometheus.series[THRESHOLDS] = [
        sample("80", kind="max-qps", **OWN),
        sample("+Inf", kind="max-tps", **OWN),
        sample("12.5", kind="max-qps", version="2", **OWN),
        sample("7", kind="max-qps", namespace="vision", tritonmodel="other"),
        sample("1", kind="of others"),
    ]
    assert asking(prometheus.url).thresholds() == {
        KEY: {QPS: 80, ThresholdKey("max-tps"): math.inf, ThresholdKey("max-qps", "2"): 12.5},
        "vision/other": {QPS: 7},
    }
    assert prometheus.queries == [THRESHOLDS]


def test_queries_only_the_watched_namespaces(prometheus: FakePrometheus) -> None:
    asking(prometheus.url, "vision", "speech").thresholds()
    assert prometheus.queries == ['tritonmodel:threshold:effective{tritonmodel!="",namespace=~"speech|vision"}']


def test_alerts_about_models_that_answer_nothing_or_are_not_counted(prometheus: FakePrometheus) -> None:
    uncounted, fails, hangs = ({**OWN, "alertname": f"TritonModel{name}", "pod": "p-1"}
                               for name in ("RequestsNotCounted", "ServerFails", "ServerHangs"))  # fmt: skip
    labels = [
        {**uncounted, "model": "net"}, {**uncounted, "model": "a" * 999}, uncounted,
        {**uncounted, "namespace": "vision", "tritonmodel": "other", "model": "x"},
        {"alertname": "TritonModelServerFails", "tritonmodel": "of others", "model": "x"},
        {**OWN, "alertname": "TritonModelAtMaxQps", "namespace": "vision", "tritonmodel": "limited"},
        {**fails, "model": "net"}, {**fails, "model": "net", "pod": ""}, {**hangs, "model": "step", "version": "2"},
    ]  # fmt: skip
    prometheus.series[ALERTS] = [{"metric": each, "value": [1.0, "1"]} for each in labels]
    assert asking(prometheus.url).alerts() == {
        KEY: Alerts(("a" * 256, "net"), (ServerFault("p-1", "net", False), ServerFault("p-1", "step", True, "2"))),
        "vision/other": Alerts(("x",)),
        "vision/limited": Alerts(at_limit=True),
    }


def test_queries_many_metrics_at_once(prometheus: FakePrometheus) -> None:
    series = '{__name__=~"a_total|b_total",tritonmodel!=""}'
    query = f"count by (namespace,tritonmodel,__name__) (last_over_time({series}[5m]))"
    prometheus.series[query] = [{"metric": {"__name__": "a_total", **OWN}, "value": [1.0, "3"]}]
    assert asking(prometheus.url).metrics(["b_total", "a_total", "b_total"]) == {(KEY, "a_total")}
    assert prometheus.queries == [query]
    asking(prometheus.url).metrics(f"c{n}" for n in range(120))
    assert len(prometheus.queries) == 1 + 3, "in parts, where there are many"
    assert asking(prometheus.url).metrics([]) == frozenset()
    assert len(prometheus.queries) == 1 + 3


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (500, "request 4711 failed at 12:00", ": it has the HTTP status 500"),
        (422, '{"status":"error","error":"x"}', ": it has the HTTP status 422"),
        (302, "", ": it has the HTTP status 302"),
        (200, "<html>hello</html>", "is not a Prometheus"),
        (200, "[]", "is not a Prometheus"),
        (200, "null", "is not a Prometheus"),
        (200, "{}", "is not a Prometheus"),
        (200, "[" * 100_000, "is not a Prometheus"),
        (200, '{"data": {"result": [{}]}}', "is not a Prometheus"),
        (200, '{"data": {"result": [1]}}', "is not a Prometheus"),
        (200, '{"data": {"result": 7}}', "is not a Prometheus"),
        (200, '{"data": {"result": [{"metric": {}, "value": []}]}}', "is not a Prometheus"),
        (200, '{"data": {"result": [{"metric": {}, "value": [1, null]}]}}', "is not a Prometheus"),
        (200, '{"data": {"result": [{"metric": {}, "value": [1, "many"]}]}}', "many"),
    ],
)
def test_reports_an_unusable_answer_with_a_constant_message(
    prometheus: FakePrometheus, status: int, body: str, words: str
) -> None:
    prometheus.status, prometheus.body = status, body
    first = failure(prometheus.url)
    assert words in first
    assert prometheus.url in first
    assert "4711" not in first
    assert failure(prometheus.url) == first


SECOND, MINUTE = (Limits(connect_seconds=s, total_seconds=s, body_bytes=LIMITS.body_bytes) for s in (1.0, 60.0))


@pytest.mark.parametrize(
    ("behave", "words"),
    [
        (bad_servers.hangs, "no complete answer within 1 s"),
        (bad_servers.trickles, "no complete answer within 1 s"),
        (bad_servers.trickles_a_head, "no complete answer within 1 s"),
        (bad_servers.trickles_without_a_length, "no complete answer within 1 s"),
        (bad_servers.always_continues, "no complete answer within 1 s"),
        (bad_servers.floods_a_head, ""),
        (bad_servers.floods, "larger than 4096 KiB"),
        (bad_servers.redirects("/"), "HTTP status 307"),
        (bad_servers.bombs(1), "is not a Prometheus"),
        (bad_servers.bombs(2), "is not a Prometheus"),
        (bad_servers.speaks_no_http, ""),
        (bad_servers.closes, ""),
    ],
)
def test_limits_the_time_and_size_of_an_answer(behave: bad_servers.Behaviour, words: str) -> None:
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, clock.of_an_idle_machine()
    with bad_servers.server("127.0.0.1", behave, 0) as served:
        # A limit that isn't about time must be reached first, also on a busy machine.
        limits = SECOND if words in ("", "no complete answer within 1 s") else MINUTE
        assert words in failure(f"http://{served.address}", limits)
        # aiohttp tries once more where the connection closes without an answer.
        assert served.connections <= 2
    assert clock.of_an_idle_machine() - started < 120  # without a limit, most of them never end
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < (50 << 10)


def test_does_not_follow_a_redirect() -> None:
    with bad_servers.server("127.0.0.1", bad_servers.answers(b"{}"), 0) as target:
        away = bad_servers.redirects(f"http://{target.address}/latest/meta-data")
        with bad_servers.server("127.0.0.1", away, 0) as served:
            assert "HTTP status 307" in failure(f"http://{served.address}", SECOND)
        assert target.connections == 0


def test_compressed_answer_is_small_on_the_wire() -> None:
    """The tests above rely on this."""
    packed = bad_servers.bomb(2)
    assert len(packed) < 4000
    assert len(gzip.decompress(gzip.decompress(packed))) == 64 << 20


def test_reports_a_prometheus_that_refuses_connections() -> None:
    first = failure("http://127.0.0.1:9")
    assert first.startswith("no usable answer from Prometheus at http://127.0.0.1:9: no connection to port 9")
    assert failure("http://127.0.0.1:9") == first
    assert failure("http://no.such.host.invalid:9")
