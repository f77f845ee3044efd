"""Prometheus as it answers, fails, hangs and lies."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator

import pytest

from support.api import eventually
from support.fake_prometheus import THRESHOLDS, FakePrometheus, sample
from triton_operator.api.monitoring import Answer
from triton_operator.api.thresholds import Slot
from triton_operator.cluster import prometheus as prometheus_module
from triton_operator.cluster.prometheus import SHARED_SECONDS, SPARED_SECONDS, Prometheuses

KEY, OWN = "vision/detection", {"namespace": "vision", "tritonmodel": "detection"}
QPS = Slot("max-qps")
TOKENS = 'count({namespace="vision",tritonmodel="detection",__name__="tokens_total"})'


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    fake = FakePrometheus()
    yield fake
    fake.close()


def test_an_answer(prometheus: FakePrometheus) -> None:
    prometheus.series[THRESHOLDS] = [
        sample("80", kind="max-qps", **OWN),
        sample("+Inf", kind="max-tps", **OWN),
        sample("12.5", kind="max-qps", version="2", **OWN),
        sample("7", kind="max-qps", namespace="vision", tritonmodel="other"),
        sample("1", kind="of others"),
    ]
    answer = Prometheuses().ask(prometheus.url, KEY)
    assert answer == Answer({QPS: 80, Slot("max-tps"): math.inf, Slot("max-qps", "2"): 12.5})
    assert prometheus.queries == [THRESHOLDS]


@pytest.mark.parametrize("found", [True, False])
def test_whether_there_are_tokens(prometheus: FakePrometheus, found: bool) -> None:
    prometheus.series[TOKENS] = [{"metric": {}, "value": [1.0, "3"]}] if found else []
    assert Prometheuses().ask(prometheus.url, KEY, "tokens_total").tokens is found


def test_no_series_is_an_answer_too(prometheus: FakePrometheus) -> None:
    assert Prometheuses().ask(prometheus.url, KEY) == Answer()


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
    answer = Prometheuses().ask(prometheus.url, KEY)
    assert answer.values == {}
    assert answer.error.endswith(words) or words in answer.error
    assert prometheus.url in answer.error
    assert "4711" not in answer.error
    assert Prometheuses().ask(prometheus.url, KEY) == answer


def test_one_that_hangs_is_waited_for_only_so_long_and_not_at_once_again(
    prometheus: FakePrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus_module, "TIMEOUT_SECONDS", 0.3)
    prometheus.hang = 30
    now = 0.0
    one = Prometheuses(clock=lambda: now)
    started = time.monotonic()
    answer = one.ask(prometheus.url, KEY)
    assert 0.2 < time.monotonic() - started < 20
    assert "timed out" in answer.error
    asked = len(prometheus.queries)
    assert one.ask(prometheus.url, "vision/other") == answer
    assert len(prometheus.queries) == asked
    prometheus.hang = 0
    now = SPARED_SECONDS + 1
    assert one.ask(prometheus.url, KEY) == Answer()


def test_one_that_trickles_and_one_that_sends_without_an_end_are_left(
    prometheus: FakePrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus_module, "TIMEOUT_SECONDS", 0.5)
    prometheus.body, prometheus.trickle = "[" * 300, 0.1
    started = time.monotonic()
    assert "no end of the answer" in Prometheuses().ask(prometheus.url, KEY).error
    assert time.monotonic() - started < 20
    monkeypatch.setattr(prometheus_module, "LARGEST", 1 << 20)
    prometheus.body, prometheus.trickle = "[" * (2 << 20), 0
    assert "no end of the answer" in Prometheuses().ask(prometheus.url, KEY).error


def test_one_that_is_not_there() -> None:
    first = Prometheuses().ask("http://127.0.0.1:9", KEY).error
    assert first.startswith("Prometheus doesn't answer at http://127.0.0.1:9: ")
    assert "0x" not in first
    assert "refused" in first
    assert Prometheuses().ask("http://no.such.host.invalid:9", KEY).error


# Once for all


def test_it_is_asked_once_for_all(prometheus: FakePrometheus) -> None:
    now = 0.0
    one = Prometheuses(clock=lambda: now)
    prometheus.tell("vision", "detection", max_qps=80)
    prometheus.tell("vision", "other", max_qps=90)
    assert one.ask(prometheus.url, KEY).values == {QPS: 80}
    assert one.ask(prometheus.url, "vision/other").values == {QPS: 90}
    assert prometheus.queries == [THRESHOLDS]
    now = SHARED_SECONDS
    one.ask(prometheus.url, KEY)
    assert len(prometheus.queries) == 2


def test_an_operator_of_some_namespaces_asks_for_these(prometheus: FakePrometheus) -> None:
    Prometheuses(("vision", "speech")).ask(prometheus.url, KEY)
    assert prometheus.queries == ['triton:threshold{tritonmodel!="",namespace=~"speech|vision"}']


def test_what_changes_is_news_once_until_nobody_waits_for_it(prometheus: FakePrometheus) -> None:
    now = 0.0
    one = Prometheuses(clock=lambda: now)

    def news() -> list[str]:
        nonlocal now
        now += 2
        return one.news()

    assert news() == []
    assert prometheus.queries == [], "where nobody waits nobody asks"
    one.ask(prometheus.url, KEY)
    one.ask(prometheus.url, "vision/other")
    assert news() == []
    prometheus.tell("vision", "detection", max_qps=80)
    assert [news(), news()] == [[KEY], []]
    one.ask(prometheus.url, KEY)
    one.settled(KEY)
    prometheus.tell("vision", "detection", max_qps=90)
    assert news() == []


def test_one_that_answers_again_is_news_and_one_that_ceases_to_is_not(prometheus: FakePrometheus) -> None:
    now = 0.0
    one = Prometheuses(clock=lambda: now)
    one.ask(prometheus.url, KEY)
    prometheus.status = 500
    now = 2
    assert one.news() == []
    assert one.ask(prometheus.url, KEY).error
    prometheus.status = 200
    now += SPARED_SECONDS
    assert one.news() == [KEY]


def test_while_one_is_asked_nobody_else_waits_for_it(
    prometheus: FakePrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus_module, "TIMEOUT_SECONDS", 60)
    now = 0.0
    one = Prometheuses(clock=lambda: now)
    prometheus.tell("vision", "other", max_qps=90)
    one.ask(prometheus.url, KEY)
    now, prometheus.hang = 5, 30
    first = threading.Thread(target=one.ask, args=(prometheus.url, KEY))
    first.start()
    eventually(lambda: len(prometheus.queries) == 2, 30)
    assert one.ask(prometheus.url, "vision/other").values == {QPS: 90}
    assert first.is_alive()
    prometheus.close()
    first.join()
    prometheus.start()
