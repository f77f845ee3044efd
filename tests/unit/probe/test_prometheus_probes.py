"""When Prometheus is polled, and to which TritonModels a change is reported."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from datetime import UTC, datetime

import pytest

from support.fake_prometheus import ALERTS, THRESHOLDS, FakePrometheus
from support.probing import run_with, until
from triton_operator.api.monitoring import PrometheusAnswer
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.probe import prometheus_probes
from triton_operator.probe.prometheus_probes import PrometheusProbes

KEY, OTHER = "vision/detection", "vision/other"
QPS = ThresholdKey("max-qps")


class Simulation:
    def __init__(self, prometheus: FakePrometheus) -> None:
        self.prometheus, self.changed = prometheus, Counter[str]()
        self.probes = PrometheusProbes(lambda key: self.changed.update([key]))

    def track(self, key: str = KEY, metrics: Collection[str] = (), *, waits: bool = True) -> PrometheusAnswer:
        answer = self.probes.track(key, self.prometheus.url, frozenset(metrics))
        self.probes.set_waiting(key, waits=waits)
        return answer

    async def next_change(self, key: str = KEY) -> PrometheusAnswer:
        """Waits for the next changed answer and returns it."""
        before = self.changed[key]
        await until(lambda: self.changed[key] > before)
        return self.track(key)

    def count(self, query: str) -> int:
        return self.prometheus.queries.count(query)

    @property
    def query_count(self) -> int:
        return len(self.prometheus.queries)

    def run(self, scene: Callable[[], Awaitable[None]]) -> None:
        run_with(self.probes.run, scene)


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulation]:
    for name in ("SHORTEST_SECONDS", "WAITING_SECONDS", "FAILED_SECONDS"):
        monkeypatch.setattr(prometheus_probes, name, 0.05)
    fake = FakePrometheus()
    yield Simulation(fake)
    fake.close()


def test_polls_once_for_all_tritonmodels_until_none_waits(sim: Simulation) -> None:
    async def scene() -> None:
        sim.prometheus.set_thresholds("vision", "detection", max_qps=80)
        assert sim.track() == PrometheusAnswer()
        assert sim.track().at == "", "polled too early"
        answer = await sim.next_change()
        assert answer.values == {QPS: 80}
        assert datetime.fromisoformat(answer.at).tzinfo == UTC
        sim.track(OTHER)
        await until(lambda: sim.query_count > 3)
        sim.track(waits=False)
        sim.track(OTHER, waits=False)
        await asyncio.sleep(0.1)
        before = sim.query_count
        await asyncio.sleep(0.4)
        assert sim.query_count == before

    sim.run(scene)


def test_reports_a_change_only_to_the_affected_tritonmodel(sim: Simulation) -> None:
    async def scene() -> None:
        sim.track()
        sim.track(OTHER)
        await until(lambda: sim.changed[KEY] and sim.changed[OTHER])
        sim.track()
        sim.track(OTHER)
        before = sim.query_count
        await until(lambda: sim.query_count > before + 3)
        assert sim.changed == {KEY: 1, OTHER: 1}, "reported the same answer again"
        sim.prometheus.set_thresholds("vision", "detection", max_qps=80)
        assert (await sim.next_change()).values == {QPS: 80}
        assert sim.changed[OTHER] == 1

    sim.run(scene)


def test_outdated_answer_is_followed_by_a_report_of_the_next_one(sim: Simulation) -> None:
    async def scene() -> None:
        sim.prometheus.set_thresholds("vision", "detection", max_qps=80)
        sim.track()
        first = await sim.next_change()
        sim.probes.set_waiting(KEY, waits=True, outdated=True)
        second = await sim.next_change()
        assert first == second
        assert second.at > first.at

    sim.run(scene)


def test_reports_which_metrics_exist(sim: Simulation) -> None:
    series = '{__name__=~"running|tokens_total",tritonmodel!=""}'
    query = f"count by (namespace,tritonmodel,__name__) (last_over_time({series}[5m]))"
    metrics = ("tokens_total", "running")

    async def scene() -> None:
        sim.track(metrics=metrics)
        await until(lambda: sim.changed[KEY])
        assert not sim.track(metrics=metrics).metrics
        labels = {"__name__": "tokens_total", "namespace": "vision", "tritonmodel": "detection"}
        sim.prometheus.series[query] = [{"metric": labels, "value": [1.0, "3"]}]
        before = sim.changed[KEY]
        await until(lambda: sim.changed[KEY] > before)
        assert sim.track(metrics=metrics).metrics == {"tokens_total"}

    sim.run(scene)


def test_reports_an_outage_at_once_to_waiting_tritonmodels_and_later_to_others(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        sim.track()
        sim.track(OTHER)
        await until(lambda: sim.changed[KEY] and sim.changed[OTHER])
        sim.track()
        good = sim.track(OTHER, waits=False)
        assert good.at
        sim.prometheus.status = 500
        assert "HTTP status 500" in (await sim.next_change()).error
        before = sim.query_count
        await until(lambda: sim.query_count > before + 3)
        assert sim.changed[OTHER] == 1
        assert sim.track(OTHER, waits=False) == good, "a reconcile for another reason sees the outage too early"
        monkeypatch.setattr(prometheus_probes, "OUTAGE_SECONDS", 0.0)
        await until(lambda: sim.changed[OTHER] == 2)
        assert "HTTP status 500" in sim.track(OTHER, waits=False).error
        sim.prometheus.status = 200
        assert (await sim.next_change()).error == ""

    sim.run(scene)


def test_a_first_outage_is_reported_to_who_is_known_to_wait(sim: Simulation) -> None:
    """An operator that has restarted doesn't know who waits before it has read the status."""

    async def scene() -> None:
        sim.prometheus.status = 500
        assert sim.probes.track(KEY, sim.prometheus.url).is_missing
        assert sim.track(OTHER, waits=False).is_missing
        await until(lambda: sim.count(THRESHOLDS) > 1)
        assert not sim.changed
        assert sim.track(OTHER, waits=False).is_missing
        sim.probes.set_waiting(KEY, waits=True)
        assert "HTTP status 500" in (await sim.next_change()).error
        assert not sim.changed[OTHER]

    sim.run(scene)


def test_an_answer_is_missing_until_the_alerts_are_known(sim: Simulation) -> None:
    """Without them a server that fails would be Ready without a word for some seconds, after each restart."""
    sim.prometheus.set_uncounted(("vision", "detection"))

    async def scene() -> None:
        seen: list[PrometheusAnswer] = []
        sim.prometheus.trickle = 0.005
        while not seen or seen[-1].is_missing:
            seen.append(sim.track(waits=False))
            await asyncio.sleep(0.01)
        assert sim.count(ALERTS)
        assert seen[-1].uncounted == ("net",)

    sim.run(scene)


def test_alerts_that_are_never_answered_are_missed_only_for_a_time(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus_probes, "ALERTS_SECONDS", 0.05)
    sim.prometheus.set_thresholds("vision", "detection", max_qps=80)
    sim.prometheus.series[ALERTS] = [{"neither": "metric", "nor": "value"}]

    async def scene() -> None:
        sim.track(waits=False)
        await until(lambda: sim.count(ALERTS) > 2)
        assert sim.track(waits=False).is_missing
        assert sim.track(OTHER, waits=True).is_missing
        await until(lambda: not sim.track(OTHER, waits=True).is_missing)
        assert sim.track(waits=False).is_missing
        monkeypatch.setattr(prometheus_probes, "OUTAGE_SECONDS", 0.0)
        await until(lambda: sim.track(waits=False).values == {QPS: 80})

    sim.run(scene)


def test_hanging_prometheus_does_not_delay_others(sim: Simulation) -> None:
    hanging = FakePrometheus()
    hanging.hang = 30

    async def scene() -> None:
        for number in range(20):
            sim.probes.track(f"ns/{number}", hanging.url)
        await until(lambda: hanging.queries)
        sim.track()
        await until(lambda: sim.changed[KEY])

    try:
        sim.run(scene)
    finally:
        hanging.close()


def test_stops_polling_the_previous_prometheus(sim: Simulation) -> None:
    async def scene() -> None:
        sim.track()
        await until(lambda: sim.changed[KEY])
        sim.probes.track(KEY, "http://127.0.0.1:9")
        sim.probes.set_waiting(KEY, waits=True)
        before = sim.changed[KEY]
        await until(lambda: sim.changed[KEY] > before)
        assert "Connect call failed" in sim.probes.track(KEY, "http://127.0.0.1:9").error
        assert list(sim.probes._sources) == ["http://127.0.0.1:9"]
        sim.probes.forget(KEY)
        assert not sim.probes._sources

    sim.run(scene)


def test_at_rest_only_the_query_for_alerts_is_frequent(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_probes, "ALERTS_SECONDS", 0.1)

    async def scene() -> None:
        sim.track()
        await sim.next_change()
        sim.track(waits=False)
        await asyncio.sleep(0.1)
        before = sim.count(THRESHOLDS)
        await until(lambda: sim.count(ALERTS) > 5)
        assert sim.count(THRESHOLDS) == before
        sim.prometheus.set_uncounted(("vision", "detection"))
        at = sim.track(waits=False).at
        answer = await sim.next_change()
        assert answer.uncounted == ("net",)
        assert answer.at == at, "the thresholds are as old as before"
        assert sim.changed[OTHER] == 0
        sim.prometheus.set_uncounted()
        sim.track(waits=False)
        assert not (await sim.next_change()).uncounted

    sim.run(scene)


def test_failed_query_for_alerts_changes_no_answer(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_probes, "ALERTS_SECONDS", 0.1)

    async def scene() -> None:
        sim.prometheus.set_thresholds("vision", "detection", max_qps=80)
        sim.prometheus.set_uncounted(("vision", "detection"))
        sim.track()
        answer = await sim.next_change()
        assert answer.uncounted == ("net",)
        before = sim.count(ALERTS)
        sim.prometheus.series[ALERTS] = [{"metric": {"tritonmodel": "x"}}, "invalid"]  # type: ignore[list-item]
        await until(lambda: sim.count(ALERTS) > before + 3)
        assert sim.track() == answer
        assert not answer.error

    sim.run(scene)
