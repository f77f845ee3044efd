"""When servers are polled for their counters, and which samples are kept. The servers are simulated."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping

import pytest

from support.probing import run_beside, until
from triton_operator.api.servers import Counters, Server
from triton_operator.probe import loads
from triton_operator.probe.fetch import FetchError
from triton_operator.probe.loads import LoadProbes

KEY = "ns/a"


def server(name: str = "pod", restarts: int = 0) -> Server:
    return Server(f"uid-{name}", name, name, (restarts, True))


class Servers:
    """Each answers with the number of times that it was asked. One in `silent` takes `delay` seconds to fail."""

    def __init__(self) -> None:
        self.asked, self.polls = Counter[str](), Counter[str]()
        self.silent: set[str] = set()
        self.delay = 0.0
        self.broken = False
        self.probes = LoadProbes(lambda key: self.polls.update([key]), self.ask)

    async def ask(self, _: object, address: str, models: Collection[str]) -> Mapping[str, Counters]:
        name = address.removesuffix(":8002")
        self.asked[name] += 1
        assert not self.broken
        if name in self.silent:
            await asyncio.sleep(self.delay)
            raise FetchError("silence")
        return {model: Counters(success=self.asked[name]) for model in models}

    def run(self, scene: Callable[[], Awaitable[None]]) -> None:
        run_beside(self.probes.run, scene)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Servers:
    monkeypatch.setattr(loads, "POLL_SECONDS", 0.02)
    return Servers()


def test_polls_tracked_servers_until_they_are_forgotten(servers: Servers) -> None:
    async def scene() -> None:
        assert servers.probes.track(KEY, [server()], ["m"]) == {"pod": ()}
        await until(lambda: servers.polls[KEY] >= 3)
        samples = servers.probes.track(KEY, [server()], ["m"])["pod"]
        assert [s.counters["m"].success for s in samples] == [float(n + 1) for n in range(len(samples))]
        assert [s.at for s in samples] == sorted({s.at for s in samples})
        servers.probes.forget(KEY)
        await asyncio.sleep(0.1)
        asked, polls = servers.asked["pod"], servers.polls[KEY]
        await asyncio.sleep(0.1)
        assert (servers.asked["pod"], servers.polls[KEY]) == (asked, polls)
        assert servers.probes.track(KEY, [server()], ["m"]) == {"pod": ()}
        await until(lambda: servers.polls[KEY] > polls)

    servers.run(scene)


def test_keeps_the_samples_of_the_last_minute_only(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "HISTORY_SECONDS", 0.1)

    async def scene() -> None:
        servers.probes.track(KEY, [server()], ["m"])
        await until(lambda: servers.polls[KEY] >= 20)
        samples = servers.probes.track(KEY, [server()], ["m"])["pod"]
        assert samples
        assert samples[-1].at - samples[0].at <= 0.1

    servers.run(scene)


def test_starts_again_when_a_server_restarts_and_drops_servers_that_are_gone(servers: Servers) -> None:
    async def scene() -> None:
        servers.probes.track(KEY, [server(), server("other")], ["m"])
        await until(lambda: servers.polls[KEY] >= 2)
        found = servers.probes.track(KEY, [server(restarts=1)], ["m"])
        assert found == {"pod": ()}
        await until(lambda: servers.probes.track(KEY, [server(restarts=1)], ["m"])["pod"])
        asked = servers.asked["other"]
        await asyncio.sleep(0.1)
        assert servers.asked["other"] == asked

    servers.run(scene)


def test_a_silent_server_gets_no_sample_and_delays_no_other(servers: Servers) -> None:
    servers.silent, servers.delay = {"silent"}, 60

    async def scene() -> None:
        for number in range(loads._CONCURRENT_POLLS + loads._CONCURRENT_SLOW_POLLS):
            servers.probes.track(f"ns/silent-{number}", [server("silent")], ["m"])
        servers.probes.track(KEY, [server(), server("silent")], ["m"])
        await until(lambda: servers.polls[KEY] >= 3)
        found = servers.probes.track(KEY, [server(), server("silent")], ["m"])
        assert found["pod"]
        assert not found["silent"]
        # Once known as slow, the others have a lane of their own.
        servers.probes.track("ns/healthy", [server()], ["m"])
        await until(lambda: servers.polls["ns/healthy"] >= 20)

    servers.run(scene)


def test_an_unexpected_error_ends_no_polling(servers: Servers) -> None:
    async def scene() -> None:
        servers.broken = True
        servers.probes.track(KEY, [server()], ["m"])
        await until(lambda: servers.polls[KEY] >= 2)
        servers.broken = False
        await until(lambda: servers.probes.track(KEY, [server()], ["m"])["pod"])

    servers.run(scene)
