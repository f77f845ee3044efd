"""When the models of servers are changed, and how often it is tried. The servers are simulated."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from support.probing import run_with, until
from triton_operator.api.servers import Change, ChangeOutcome, RunningServer
from triton_operator.probe import changes
from triton_operator.probe.changes import ModelChanges
from triton_operator.probe.fetch import FetchError
from triton_operator.probe.model_control import RefusedError, steps

KEY, WANTED = "ns/a", ("m",)
CHANGE = Change(("m",), (), ("m",), 9.0)


def server(name: str = "pod", restarts: int = 0, ready: bool = True) -> RunningServer:
    return RunningServer(f"uid-{name}", name, name, (restarts, ready))


class SimulatedServers:
    """Each server answers with `outcome` after `answers` is set. Counts the attempts and the calls of on_change."""

    def __init__(self) -> None:
        self.attempts, self.changed = Counter[str](), Counter[str]()
        self.outcome = ChangeOutcome("Done")
        self.answers = asyncio.Event()
        self.answers.set()
        self.cancelled = 0
        self.holds_address = True
        self.changes = ModelChanges(
            lambda key: self.changed.update([key]), make=self.make, holds_address=lambda *_: self.holds_address
        )

    async def make(self, _: object, server: RunningServer, change: Change) -> ChangeOutcome:
        self.attempts[server.pod] += 1
        try:
            await self.answers.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.outcome

    def state(self, running: RunningServer | None = None, *models: str) -> str:
        running = running or server()
        outcome = self.changes.outcomes(KEY, [(running, models or WANTED)]).get(running.uid)
        return outcome.state if outcome else ""

    def run(self, scene: Callable[[], Awaitable[None]]) -> None:
        run_with(self.changes.run, scene)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> SimulatedServers:
    monkeypatch.setattr(changes, "_FIRST_RETRY_SECONDS", 0.002)
    return SimulatedServers()


def test_changes_a_server_once(servers: SimulatedServers) -> None:
    async def scene() -> None:
        servers.changes.start(KEY, server(), CHANGE, WANTED)
        await until(lambda: servers.state() == "Done")
        for _ in range(5):
            servers.changes.start(KEY, server(), CHANGE, WANTED)
            await asyncio.sleep(0)
        assert servers.state(server(ready=False)) == "Done"
        assert (servers.attempts["pod"], servers.changed[KEY]) == (1, 1)

    servers.run(scene)


@pytest.mark.parametrize(("state", "again"), [("Refused", False), ("Stuck", False), ("Unreachable", True)])
def test_tries_again_only_if_the_server_did_not_answer(servers: SimulatedServers, state: str, again: bool) -> None:
    async def scene() -> None:
        servers.outcome = ChangeOutcome(state)  # type: ignore[arg-type]
        servers.changes.start(KEY, server(), CHANGE, WANTED)
        await until(lambda: servers.state() == state)
        if again:
            await until(lambda: servers.attempts["pod"] > 2)
            return
        for _ in range(50):
            servers.changes.start(KEY, server(), CHANGE, WANTED)
            await asyncio.sleep(0.001)
        assert servers.attempts["pod"] == 1

    servers.run(scene)


def test_changes_no_server_whose_address_may_be_that_of_another(servers: SimulatedServers) -> None:
    async def scene() -> None:
        servers.holds_address = False
        servers.changes.start(KEY, server(), CHANGE, WANTED)
        await until(lambda: servers.state() == "Unreachable")
        await until(lambda: servers.changed[KEY] > 2)
        assert not servers.attempts
        # The API server didn't answer before.
        servers.holds_address = True
        await until(lambda: servers.state() == "Done")
        assert servers.attempts["pod"] == 1

    servers.run(scene)


def test_another_list_ends_the_change(servers: SimulatedServers) -> None:
    async def scene() -> None:
        servers.answers.clear()
        servers.changes.start(KEY, server(), CHANGE, WANTED)
        await until(lambda: servers.attempts["pod"] == 1)
        assert servers.state(server(), "other") == ""
        await until(lambda: servers.cancelled == 1)

    servers.run(scene)


def test_a_server_that_restarts_during_a_change_is_not_tried_again(servers: SimulatedServers) -> None:
    async def scene() -> None:
        servers.answers.clear()
        servers.changes.start(KEY, server(), CHANGE, WANTED)
        await until(lambda: servers.attempts["pod"] == 1)
        for restarts in (1, 2):
            assert servers.state(server(restarts=restarts)) == "Refused"
            servers.changes.start(KEY, server(restarts=restarts), CHANGE, WANTED)
        assert servers.attempts["pod"] == 1

    servers.run(scene)


def test_a_server_that_restarts_after_a_change_is_changed_again(servers: SimulatedServers) -> None:
    async def scene() -> None:
        for restarts in range(3):
            restarted = server(restarts=restarts)
            assert servers.state(restarted) == ""
            servers.changes.start(KEY, restarted, CHANGE, WANTED)
            await until(lambda restarted=restarted: servers.state(restarted) == "Done")  # type: ignore[misc]
        assert servers.attempts["pod"] == 3

    servers.run(scene)


def test_goes_on_after_a_bug_and_forgets(servers: SimulatedServers) -> None:
    async def scene() -> None:
        servers.answers.clear()
        servers.changes.start(KEY, server(), CHANGE, WANTED)
        await until(lambda: servers.attempts["pod"] == 1)
        servers.changes.forget(KEY)
        await until(lambda: servers.cancelled == 1)
        servers.answers.set()
        servers.changes.start("other/b", server("b"), CHANGE, WANTED)
        await until(lambda: servers.changed["other/b"] == 1)

    servers.run(scene)


def test_reads_the_steps_of_an_ensemble() -> None:
    step = '{"model_name": "%s", "model_version": -1}'
    assert steps(b'{"name": "a", "platform": "onnxruntime_onnx"}') == []
    assert steps(f'{{"ensemble_scheduling": {{"step": [{step % "x"}, {step % "y"}]}}}}'.encode()) == ["x", "y"]
    for body in (b"", b"[]", b'{"ensemble_scheduling": 1}', b'{"ensemble_scheduling": {"step": [{"model_name": 1}]}}'):
        with pytest.raises((RefusedError, FetchError)):
            steps(body)
