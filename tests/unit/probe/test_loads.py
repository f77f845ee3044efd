"""When servers are polled for their counters, and which samples are kept. The servers are simulated."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from support.probing import run_with, until
from triton_operator.api.servers import Counters, RunningServer, ServerCounters, Subject
from triton_operator.probe import loads, polls
from triton_operator.probe.fetch import FetchError
from triton_operator.probe.loads import load_probes
from triton_operator.scaling import demand

KEY = "ns/a"
MODEL = Subject("m")


def server(name: str = "pod", restarts: int = 0) -> RunningServer:
    return RunningServer(f"uid-{name}", name, name, (restarts, True))


class SimulatedServers:
    """Each server returns its number of requests as its counter. A server in `silent` fails after `delay` seconds, and
    one in `slow` answers after them. One in `hanging` doesn't answer; `waiting`: the requests to those."""

    def __init__(self) -> None:
        self.requests, self.polls = Counter[str](), Counter[str]()
        self.silent, self.slow = set[str](), set[str]()
        self.hanging, self.waiting = set[str](), 0
        self.delay = 0.0
        self.broken = False
        self.probes = load_probes(lambda key: self.polls.update([key]), self.get_counters)

    async def get_counters(self, _: object, address: str, subject: Subject) -> ServerCounters:
        name = address.removesuffix(":8002")
        self.requests[name] += 1
        assert not self.broken
        if name in self.hanging:
            self.waiting += 1
            await asyncio.Event().wait()
        if name in self.silent:
            await asyncio.sleep(self.delay)
            raise FetchError("no answer")
        if name in self.slow:
            await asyncio.sleep(self.delay)
        return ServerCounters({subject.entrypoint: Counters(success=self.requests[name])})

    def run(self, scene: Callable[[], Awaitable[None]]) -> None:
        run_with(self.probes.run, scene)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> SimulatedServers:
    monkeypatch.setattr(loads, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(polls, "PATIENCE_SECONDS", 0.04)
    return SimulatedServers()


def test_polls_tracked_servers_until_they_are_forgotten(servers: SimulatedServers) -> None:
    async def scene() -> None:
        assert servers.probes.track(KEY, [server()], MODEL) == {"pod": ()}
        await until(lambda: servers.polls[KEY] >= 3)
        samples = servers.probes.track(KEY, [server()], MODEL)["pod"]
        assert [s.requests for s in samples] == [float(n + 1) for n in range(len(samples))]
        assert [s.at for s in samples] == sorted({s.at for s in samples})
        servers.probes.forget(KEY)
        await asyncio.sleep(0.1)
        requests, counted = servers.requests["pod"], servers.polls[KEY]
        await asyncio.sleep(0.1)
        assert (servers.requests["pod"], servers.polls[KEY]) == (requests, counted)
        assert servers.probes.track(KEY, [server()], MODEL) == {"pod": ()}
        await until(lambda: servers.polls[KEY] > counted)

    servers.run(scene)


def test_keeps_the_samples_of_the_last_minute_only(servers: SimulatedServers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "HISTORY_SECONDS", 0.1)

    async def scene() -> None:
        servers.probes.track(KEY, [server()], MODEL)
        await until(lambda: servers.polls[KEY] >= 20)
        samples = servers.probes.track(KEY, [server()], MODEL)["pod"]
        assert samples
        assert samples[-1].at - samples[0].at <= 0.1

    servers.run(scene)


def test_starts_again_when_a_server_restarts_and_drops_servers_that_are_gone(servers: SimulatedServers) -> None:
    async def scene() -> None:
        servers.probes.track(KEY, [server(), server("other")], MODEL)
        await until(lambda: servers.polls[KEY] >= 2)
        histories = servers.probes.track(KEY, [server(restarts=1)], MODEL)
        assert histories == {"pod": ()}
        await until(lambda: servers.probes.track(KEY, [server(restarts=1)], MODEL)["pod"])
        requests = servers.requests["other"]
        await asyncio.sleep(0.1)
        assert servers.requests["other"] == requests

    servers.run(scene)


def test_silent_server_has_no_sample_and_delays_no_other(servers: SimulatedServers) -> None:
    servers.silent, servers.delay = {"silent"}, 60

    async def scene() -> None:
        for number in range(polls._CONCURRENT_POLLS + polls._CONCURRENT_SLOW_POLLS):
            servers.probes.track(f"ns/silent-{number}", [server("silent")], MODEL)
        servers.probes.track(KEY, [server(), server("silent")], MODEL)
        await until(lambda: servers.polls[KEY] >= 3)
        histories = servers.probes.track(KEY, [server(), server("silent")], MODEL)
        assert histories["pod"]
        assert not histories["silent"]
        # Slow servers have their own slots, so a healthy server is polled in time.
        servers.probes.track("ns/healthy", [server()], MODEL)
        await until(lambda: servers.polls["ns/healthy"] >= 20)

    servers.run(scene)


def test_a_server_that_needs_longer_than_a_poll_still_has_samples_and_delays_no_other(
    servers: SimulatedServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polls, "PATIENCE_SECONDS", 0.6)
    servers.slow, servers.delay = {"slow"}, 0.2

    async def scene() -> None:
        for number in range(polls._CONCURRENT_POLLS + polls._CONCURRENT_SLOW_POLLS):
            servers.probes.track(f"ns/slow-{number}", [server("slow")], MODEL)
        servers.probes.track(KEY, [server("slow")], MODEL)
        await until(lambda: len(servers.probes.track(KEY, [server("slow")], MODEL)["slow"]) >= 2)
        servers.probes.track("ns/healthy", [server()], MODEL)
        await until(lambda: servers.polls["ns/healthy"] >= 3 * servers.polls[KEY])

    servers.run(scene)


@pytest.mark.parametrize(("slow", "places"), [(False, polls._CONCURRENT_POLLS), (True, polls._CONCURRENT_SLOW_POLLS)])
def test_hanging_servers_of_one_namespace_delay_no_other_namespace(
    servers: SimulatedServers, monkeypatch: pytest.MonkeyPatch, slow: bool, places: int
) -> None:
    monkeypatch.setattr(polls, "PATIENCE_SECONDS", 600)
    keys = [f"greedy/{number}" for number in range(300)]

    async def scene() -> None:
        servers.silent = {"hangs", "pod"} if slow else set()
        for key in (*keys, KEY) if slow else keys:
            servers.probes.track(key, [server("pod" if key == KEY else "hangs")], MODEL)
        await until(lambda: all(servers.polls[key] for key in keys))
        servers.hanging = {"hangs"}
        # They get half of the places.
        await until(lambda: servers.waiting >= places // 2)
        await asyncio.sleep(0.5)
        before = servers.polls[KEY]
        servers.probes.track(KEY, [server()], MODEL)
        await until(lambda: servers.polls[KEY] >= before + 10)

    servers.run(scene)


def test_a_sample_arrives_before_the_server_counts_as_silent() -> None:
    """Two polls in a row may each take as long as is allowed."""
    longest = max(polls.PATIENCE_SECONDS, 1.1 * loads.POLL_SECONDS)
    assert longest < demand.STALE_SECONDS


def test_polling_continues_after_an_unexpected_error(servers: SimulatedServers) -> None:
    async def scene() -> None:
        servers.broken = True
        servers.probes.track(KEY, [server()], MODEL)
        await until(lambda: servers.polls[KEY] >= 2)
        servers.broken = False
        await until(lambda: servers.probes.track(KEY, [server()], MODEL)["pod"])

    servers.run(scene)


def test_samples_begin_again_when_other_models_are_counted(servers: SimulatedServers) -> None:
    async def scene() -> None:
        servers.probes.track(KEY, [server()], MODEL)
        await until(lambda: servers.probes.track(KEY, [server()], MODEL)["pod"])
        assert servers.probes.track(KEY, [server()], Subject("m", frozenset({"step"}))) == {"pod": ()}

    servers.run(scene)
