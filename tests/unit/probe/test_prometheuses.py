"""When Prometheus is polled, and to which TritonModels a change is reported."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime

import pytest

from support.fake_prometheus import FakePrometheus
from support.probing import run_with, until
from triton_operator.api.monitoring import Answer
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.probe import prometheuses
from triton_operator.probe.prometheuses import PrometheusProbes

KEY, OTHER = "vision/detection", "vision/other"
QPS = ThresholdKey("max-qps")


class World:
    def __init__(self, prometheus: FakePrometheus) -> None:
        self.prometheus, self.changed = prometheus, Counter[str]()
        self.probes = PrometheusProbes(lambda key: self.changed.update([key]))

    def track(self, key: str = KEY, counter: str = "", *, waits: bool = True) -> Answer:
        answer = self.probes.track(key, self.prometheus.url, counter)
        self.probes.set_waiting(key, waits=waits)
        return answer

    async def next_change(self, key: str = KEY) -> Answer:
        """Waits for the next changed answer and returns it."""
        before = self.changed[key]
        await until(lambda: self.changed[key] > before)
        return self.track(key)

    @property
    def asked(self) -> int:
        return len(self.prometheus.queries)

    def run(self, scene: Callable[[], Awaitable[None]]) -> None:
        run_with(self.probes.run, scene)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name in ("SHORTEST_SECONDS", "WAITING_SECONDS", "FAILED_SECONDS"):
        monkeypatch.setattr(prometheuses, name, 0.05)
    fake = FakePrometheus()
    yield World(fake)
    fake.close()


def test_polls_once_for_all_tritonmodels_until_none_waits(world: World) -> None:
    async def scene() -> None:
        world.prometheus.set_thresholds("vision", "detection", max_qps=80)
        assert world.track() == Answer()
        assert world.track().at == "", "polled too early"
        answer = await world.next_change()
        assert answer.values == {QPS: 80}
        assert datetime.fromisoformat(answer.at).tzinfo == UTC
        world.track(OTHER)
        await until(lambda: world.asked > 3)
        world.track(waits=False)
        world.track(OTHER, waits=False)
        await asyncio.sleep(0.1)
        asked = world.asked
        await asyncio.sleep(0.4)
        assert world.asked == asked

    world.run(scene)


def test_reports_a_change_only_to_the_affected_tritonmodel(world: World) -> None:
    async def scene() -> None:
        world.track()
        world.track(OTHER)
        await until(lambda: world.changed[KEY] and world.changed[OTHER])
        world.track()
        world.track(OTHER)
        asked = world.asked
        await until(lambda: world.asked > asked + 3)
        assert world.changed == {KEY: 1, OTHER: 1}, "reported the same answer again"
        world.prometheus.set_thresholds("vision", "detection", max_qps=80)
        assert (await world.next_change()).values == {QPS: 80}
        assert world.changed[OTHER] == 1

    world.run(scene)


def test_outdated_answer_is_followed_by_a_report_of_the_next_one(world: World) -> None:
    async def scene() -> None:
        world.prometheus.set_thresholds("vision", "detection", max_qps=80)
        world.track()
        first = await world.next_change()
        world.probes.set_waiting(KEY, waits=True, outdated=True)
        second = await world.next_change()
        assert first == second
        assert second.at > first.at

    world.run(scene)


def test_reports_whether_the_token_counter_exists(world: World) -> None:
    query = 'count by (namespace,tritonmodel,__name__) ({__name__=~"tokens_total",tritonmodel!=""})'

    async def scene() -> None:
        world.track(counter="tokens_total")
        await until(lambda: world.changed[KEY])
        assert not world.track(counter="tokens_total").tokens
        labels = {"__name__": "tokens_total", "namespace": "vision", "tritonmodel": "detection"}
        world.prometheus.series[query] = [{"metric": labels, "value": [1.0, "3"]}]
        before = world.changed[KEY]
        await until(lambda: world.changed[KEY] > before)
        assert world.track(counter="tokens_total").tokens

    world.run(scene)


def test_reports_an_outage_at_once_to_waiting_tritonmodels_and_later_to_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        world.track()
        world.track(OTHER)
        await until(lambda: world.changed[KEY] and world.changed[OTHER])
        world.track()
        world.track(OTHER, waits=False)
        world.prometheus.status = 500
        assert "HTTP status 500" in (await world.next_change()).error
        asked = world.asked
        await until(lambda: world.asked > asked + 3)
        assert world.changed[OTHER] == 1
        monkeypatch.setattr(prometheuses, "OUTAGE_SECONDS", 0.0)
        await until(lambda: world.changed[OTHER] == 2)
        world.prometheus.status = 200
        assert (await world.next_change()).error == ""

    world.run(scene)


def test_hanging_prometheus_does_not_delay_others(world: World) -> None:
    hanging = FakePrometheus()
    hanging.hang = 30

    async def scene() -> None:
        for number in range(20):
            world.probes.track(f"ns/{number}", hanging.url)
        await until(lambda: hanging.queries)
        world.track()
        await until(lambda: world.changed[KEY])

    try:
        world.run(scene)
    finally:
        hanging.close()


def test_stops_polling_the_previous_prometheus(world: World) -> None:
    async def scene() -> None:
        world.track()
        await until(lambda: world.changed[KEY])
        world.probes.track(KEY, "http://127.0.0.1:9")
        before = world.changed[KEY]
        await until(lambda: world.changed[KEY] > before)
        assert "Connect call failed" in world.probes.track(KEY, "http://127.0.0.1:9").error
        assert list(world.probes._sources) == ["http://127.0.0.1:9"]
        world.probes.forget(KEY)
        assert not world.probes._sources

    world.run(scene)
