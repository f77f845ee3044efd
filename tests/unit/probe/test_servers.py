"""When servers are polled, and which changes are reported. Only the servers are simulated."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from support.probing import run_with, until
from triton_operator.api.servers import IndexEntry, LoadTimes, RunningServer, ServerAnswers, Uncounted
from triton_operator.probe import lanes, schedule, servers
from triton_operator.probe.answer_cache import AnswerCache, size_of
from triton_operator.probe.fetch import FetchError, UnusableError
from triton_operator.probe.servers import ServerProbes
from triton_operator.probe.triton import IndexAnswer

READY = IndexAnswer((IndexEntry("a", "1", "READY", ""),), all_ready=True)
LOADING = IndexAnswer((IndexEntry("a", "1", "LOADING", ""),), all_ready=False)
KEY = "ns/a"


def server(name: str = "pod", epoch: tuple[int, bool] = (0, True), uid: str = "") -> RunningServer:
    return RunningServer(uid or f"uid-{name}", name, name, epoch)


class Simulation:
    """Simulated servers and their answers by address. A server without an answer fails after `hang` seconds."""

    def __init__(self) -> None:
        self.answers: dict[str, IndexAnswer] = {"pod": READY}
        self.polls, self.changed = Counter[str](), Counter[str]()
        self.hang, self.polling, self.max_polling, self.wrong = 0.0, 0, 0, False
        self.unusable = ""
        self.probes = ServerProbes(lambda key: self.changed.update([key]), self.read)

    async def read(self, _: object, address: str) -> IndexAnswer:
        address = address.removesuffix(":8000")
        self.polls[address] += 1
        self.polling += 1
        self.max_polling = max(self.max_polling, self.polling)
        try:
            assert not self.wrong
            if self.unusable:
                raise UnusableError(self.unusable)
            if address not in self.answers:
                await asyncio.sleep(self.hang)
                raise FetchError("silence")
            return self.answers[address]
        finally:
            self.polling -= 1

    def run(self, scene: Callable[[], Awaitable[None]]) -> None:
        run_with(self.probes.run, scene)


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> Simulation:
    monkeypatch.setattr(schedule, "_FIRST_SECONDS", 0.01)
    monkeypatch.setattr(schedule, "_LOADING_SECONDS", 0.02)
    return Simulation()


def test_track_returns_the_last_answer_and_reports_the_next(sim: Simulation) -> None:
    async def scene() -> None:
        assert sim.probes.track(KEY, [server()]) == ServerAnswers({}, pending=True)
        await until(lambda: sim.changed[KEY])
        assert sim.probes.track(KEY, [server()]) == ServerAnswers({"pod": READY.index}, pending=False)
        await asyncio.sleep(0.2)
        assert (sim.polls["pod"], sim.changed[KEY]) == (1, 1), "polled again although nothing changed"

    sim.run(scene)


def test_polls_a_loading_server_until_it_is_ready(sim: Simulation) -> None:
    async def scene() -> None:
        sim.answers["pod"] = LOADING
        sim.probes.track(KEY, [server()])
        await until(lambda: sim.polls["pod"] > 5)
        assert sim.changed[KEY] == 1, "reported the same answer again"
        sim.answers["pod"] = READY
        await until(lambda: sim.changed[KEY] == 2)
        assert sim.probes.track(KEY, [server()]).indexes == {"pod": READY.index}
        polls = sim.polls["pod"]
        await asyncio.sleep(0.2)
        assert sim.polls["pod"] == polls

    sim.run(scene)


def test_polls_a_changed_server_at_once(sim: Simulation) -> None:
    async def scene() -> None:
        sim.probes.track(KEY, [server(epoch=(0, False))])
        await until(lambda: sim.changed[KEY] == 1)
        # The readiness changed. The last answer stays valid until the next one, which is reported in any case.
        assert sim.probes.track(KEY, [server(epoch=(0, True))]) == ServerAnswers({"pod": READY.index}, pending=True)
        await until(lambda: sim.changed[KEY] == 2)
        # The server restarted.
        assert sim.probes.track(KEY, [server(epoch=(1, True))]) == ServerAnswers({}, pending=True)
        await until(lambda: sim.changed[KEY] == 3)
        # Another pod with the same name.
        assert sim.probes.track(KEY, [server(epoch=(1, True), uid="b")]) == ServerAnswers({}, pending=True)
        await until(lambda: sim.changed[KEY] == 4)
        assert sim.polls["pod"] == 4

    sim.run(scene)


def test_silent_server_has_no_answer(sim: Simulation) -> None:
    async def scene() -> None:
        sim.probes.track(KEY, [server(epoch=(0, False))])
        await until(lambda: sim.changed[KEY] == 1)
        del sim.answers["pod"]
        sim.probes.track(KEY, [server(epoch=(0, True))])
        await until(lambda: sim.changed[KEY] == 2)
        assert sim.probes.track(KEY, [server(epoch=(0, True))]) == ServerAnswers()
        sim.answers["pod"] = READY
        await until(lambda: sim.changed[KEY] == 3)
        assert sim.probes.track(KEY, [server(epoch=(0, True))]).indexes == {"pod": READY.index}

    sim.run(scene)


def test_polls_a_server_again_that_changed_during_a_poll(sim: Simulation) -> None:
    async def scene() -> None:
        sim.hang = 0.2
        del sim.answers["pod"]
        sim.probes.track(KEY, [server(epoch=(0, False))])
        await until(lambda: sim.polls["pod"] == 1)
        sim.answers["pod"] = READY
        sim.probes.track(KEY, [server(epoch=(0, True))])
        await until(lambda: sim.changed[KEY])
        assert sim.probes.track(KEY, [server(epoch=(0, True))]) == ServerAnswers({"pod": READY.index})
        assert sim.polls["pod"] == 2

    sim.run(scene)


def test_forget_stops_polling_and_frees_the_state(sim: Simulation) -> None:
    async def scene() -> None:
        del sim.answers["pod"]
        sim.probes.track(KEY, [server()])
        await until(lambda: sim.polls["pod"] > 2)
        sim.probes.forget(KEY)
        await asyncio.sleep(0.05)
        polls = sim.polls["pod"]
        await asyncio.sleep(0.3)
        assert sim.polls["pod"] == polls
        assert not sim.probes._targets
        assert not sim.probes._silent

    sim.run(scene)


def test_polls_a_server_with_explicit_model_control_more_often(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "EXPLICIT_REST_SECONDS", 0.05)

    async def scene() -> None:
        sim.probes.track(KEY, [server()], explicit=True)
        await until(lambda: sim.polls["pod"] > 3)
        assert sim.changed[KEY] == 1

    sim.run(scene)


def test_reports_an_unusable_answer_once(sim: Simulation) -> None:
    async def scene() -> None:
        sim.unusable = "isn't JSON"
        sim.probes.track(KEY, [server()])
        await until(lambda: sim.changed[KEY] == 1)
        assert sim.probes.track(KEY, [server()]) == ServerAnswers({}, {"pod": "isn't JSON"})
        polls = sim.polls["pod"]
        await until(lambda: sim.polls["pod"] > polls + 1)
        assert sim.changed[KEY] == 1, "reported the same fault again"
        sim.unusable = ""
        await until(lambda: sim.changed[KEY] == 2)
        assert sim.probes.track(KEY, [server()]) == ServerAnswers({"pod": READY.index})

    sim.run(scene)


def test_reports_an_answer_that_exceeds_the_memory_share(sim: Simulation) -> None:
    sim.probes = ServerProbes(lambda key: sim.changed.update([key]), sim.read, cache=AnswerCache(size_of(LOADING)))

    async def scene() -> None:
        sim.answers = {"a": READY, "b": READY, "c": LOADING}
        sim.probes.track("ns/one", [server("a"), server("b")])
        await until(lambda: sim.polls["a"] and sim.polls["b"])
        sim.probes.track("ns/two", [server("c")])
        await until(lambda: sim.changed["ns/two"])
        assert set(sim.probes.track("ns/one", [server("a"), server("b")]).indexes) == {"a", "b"}
        answers = sim.probes.track("ns/two", [server("c")])
        assert not answers.indexes
        assert "already use the namespace's share" in answers.unusable["c"]
        sim.probes.forget("ns/one")
        await until(lambda: sim.probes.track("ns/two", [server("c")]).indexes)
        sim.probes.forget("ns/two")
        assert not sim.probes._cache._entries

    sim.run(scene)


def test_silent_servers_do_not_delay_others(sim: Simulation) -> None:
    """Silent servers of one TritonModel and of many. After their first failure they share the slow lane."""

    async def scene() -> None:
        sim.hang = 0.5
        many = {f"ns/{n}": [server(f"silent-{n}")] for n in range(150)}
        many["ns/big"] = [server(f"big-{n}") for n in range(150)]
        for key, group in many.items():
            sim.probes.track(key, group)
        await until(lambda: sum(sim.polls.values()) >= 300 + lanes.SLOW)
        assert sim.max_polling <= lanes.FAST + lanes.SLOW
        loop = asyncio.get_running_loop()
        longest = 0.0
        for number in range(10):
            began, key = loop.time(), f"ns/good-{number}"
            sim.answers[key] = READY
            sim.probes.track(key, [server(key)])
            await until(lambda key=key: sim.changed[key])
            longest = max(longest, loop.time() - began)
        assert longest < sim.hang

    sim.run(scene)


def test_silent_servers_do_not_delay_silent_servers_of_another_namespace(sim: Simulation) -> None:
    """The first poll of each server uses the fast lane, later polls use the slow lane."""

    async def scene() -> None:
        sim.hang = 0.5
        for number in range(300):
            sim.probes.track(f"noisy/{number}", [server(f"noisy-{number}")])
        await until(lambda: sum(sim.polls.values()))
        sim.probes.track("quiet/a", [server("quiet")])
        await until(lambda: sim.polls["quiet"])
        assert sum(sim.polls.values()) < 300 / 2, "waited for the fast lane"
        await until(lambda: sim.polls["quiet"] > 1)
        assert sum(sim.polls.values()) < 300, "waited for the slow lane"

    sim.run(scene)


def test_reports_uncounted_models_of_ready_servers(sim: Simulation) -> None:
    questions: list[tuple[str, str]] = []

    async def count(_: object, address: str, entrypoint: str) -> Uncounted:
        questions.append((address, entrypoint))
        if len(questions) == 2:
            raise UnusableError("has the HTTP status 500")
        return (("a", "its warm-up isn't counted"),)

    sim.probes = ServerProbes(lambda key: sim.changed.update([key]), sim.read, count=count)

    async def scene() -> None:
        sim.answers["pod"] = LOADING
        sim.probes.track(KEY, [server()], entrypoint="a")
        await until(lambda: sim.polls["pod"] > 2)
        assert not questions, "asked before all models are ready"
        sim.answers["pod"] = READY
        await until(lambda: len(questions) == 1 and sim.changed[KEY] == 2)
        assert sim.probes.track(KEY, [server()], entrypoint="a").uncounted == (("a", "its warm-up isn't counted"),)
        # A server that doesn't tell keeps its last answer.
        sim.probes.track(KEY, [server(epoch=(0, False))], entrypoint="a")
        await until(lambda: len(questions) == 2 and sim.changed[KEY] == 3)
        answers = sim.probes.track(KEY, [server(epoch=(0, False))], entrypoint="a")
        assert (answers.uncounted, answers.unusable) == ((("a", "its warm-up isn't counted"),), {})
        # After a restart it may run other code.
        assert sim.probes.track(KEY, [server(epoch=(1, False))], entrypoint="a").uncounted == ()

    sim.run(scene)
    assert set(questions) == {("pod:8000", "a")}


def test_asks_each_start_of_a_server_once_where_a_model_runs(sim: Simulation) -> None:
    questions: list[tuple[str, str]] = []
    on_cpu = True

    async def runs_on_cpu(_: object, address: str, model: str) -> bool:
        questions.append((address, model))
        if len(questions) == 1:
            raise UnusableError("has the HTTP status 403")
        return on_cpu

    sim.probes = ServerProbes(lambda key: sim.changed.update([key]), sim.read, runs_on_cpu=runs_on_cpu)

    def track(epoch: tuple[int, bool] = (0, True)) -> ServerAnswers:
        return sim.probes.track(KEY, [server(epoch=epoch)], gpu_models={"uid-pod": ("b", "a")})

    async def polled(epoch: tuple[int, bool]) -> ServerAnswers:
        polls, changed = sim.polls["pod"], sim.changed[KEY]
        track(epoch)
        await until(lambda: sim.polls["pod"] > polls and sim.changed[KEY] > changed)
        return track(epoch)

    async def scene() -> None:
        nonlocal on_cpu
        sim.answers["pod"] = LOADING
        track()
        await until(lambda: sim.polls["pod"] > 2)
        assert not questions, "asked before the model is ready"
        sim.answers["pod"] = READY
        await until(lambda: len(questions) == 1)
        answers = await polled((0, False))
        assert (answers.on_cpu, answers.unusable) == ({"pod": "a"}, {}), "a server that doesn't tell is asked again"
        on_cpu = False
        assert (await polled((0, True))).on_cpu == {"pod": "a"}
        assert len(questions) == 2, "the answer can't have changed"
        # After a restart it may see a GPU.
        assert track((1, True)).on_cpu == {}
        await until(lambda: len(questions) == 3)
        assert (await polled((1, False))).on_cpu == {}
        assert len(questions) == 3

    sim.run(scene)
    assert set(questions) == {("pod:8000", "a")}


def test_asks_each_start_of_a_server_once_for_its_version(sim: Simulation) -> None:
    versions = ["", "2.51.0", "2.71.0"]

    async def version(*_: object) -> str:
        if text := versions.pop(0):
            return text
        raise UnusableError("has the HTTP status 403")

    sim.probes = ServerProbes(lambda key: sim.changed.update([key]), sim.read, version=version)

    async def polled(epoch: tuple[int, bool]) -> ServerAnswers:
        polls, changed = sim.polls["pod"], sim.changed[KEY]
        sim.probes.track(KEY, [server(epoch=epoch)])
        await until(lambda: sim.polls["pod"] > polls and sim.changed[KEY] > changed)
        return sim.probes.track(KEY, [server(epoch=epoch)])

    async def scene() -> None:
        refused = await polled((0, False))
        assert (refused.versions, refused.indexes) == ({}, {"pod": READY.index})
        assert (await polled((0, True))).versions == {"pod": "2.51.0"}
        del sim.answers["pod"]
        assert (await polled((0, False))).versions == {"pod": "2.51.0"}, "a server that hangs is the same server"
        sim.answers["pod"] = READY
        assert (await polled((1, False))).versions == {"pod": "2.71.0"}, "a restart may run another image"

    sim.run(scene)
    assert not versions


def test_reads_load_times_once_for_each_change_of_the_models(sim: Simulation) -> None:
    pages: list[LoadTimes | None] = [{("a", "1"): 1.5}, {("a", "1"): 2.5}, None, {("a", "1"): 3.5}]
    asked = list[str]()

    async def version(*_: object) -> str:
        return "2.71.0"

    async def load_times(_: object, address: str) -> LoadTimes:
        asked.append(address)
        if page := pages.pop(0):
            return page
        raise FetchError("silence")

    sim.probes = ServerProbes(lambda key: sim.changed.update([key]), sim.read, version=version, load_times=load_times)

    async def polled(epoch: tuple[int, bool]) -> ServerAnswers:
        polls, changed = sim.polls["pod"], sim.changed[KEY]
        sim.probes.track(KEY, [server(epoch=epoch)])
        await until(lambda: sim.polls["pod"] > polls and sim.changed[KEY] > changed)
        return sim.probes.track(KEY, [server(epoch=epoch)])

    async def scene() -> None:
        sim.answers["pod"] = LOADING
        sim.probes.track(KEY, [server(epoch=(0, False))])
        await until(lambda: sim.polls["pod"] > 2)
        assert not asked, "asked before the loads have ended"
        sim.answers["pod"] = READY
        await until(lambda: asked)
        assert (await polled((0, True))).load_times == {"pod": {("a", "1"): 1.5}}
        assert len(asked) == 1, "the models are the same"
        # The operator has reloaded a model: the index is the same, the time isn't.
        changed = sim.changed[KEY]
        sim.probes.refresh(KEY, "uid-pod")
        await until(lambda: sim.changed[KEY] > changed)
        assert sim.probes.track(KEY, [server(epoch=(0, True))]).load_times == {"pod": {("a", "1"): 2.5}}
        # The restarted server doesn't answer at first; the next poll repeats the question.
        refused = await polled((1, False))
        assert (refused.load_times, refused.indexes) == ({}, {"pod": READY.index})
        assert (await polled((1, True))).load_times == {"pod": {("a", "1"): 3.5}}

    sim.run(scene)
    assert (set(asked), pages) == ({"pod:8002"}, [])


def test_reads_no_load_times_of_servers_that_measure_none(sim: Simulation) -> None:
    async def version(*_: object) -> str:
        return "2.51.0"

    async def load_times(*_: object) -> LoadTimes:
        pytest.fail("asked")

    sim.probes = ServerProbes(lambda key: sim.changed.update([key]), sim.read, version=version, load_times=load_times)

    async def scene() -> None:
        sim.probes.track(KEY, [server()])
        await until(lambda: sim.changed[KEY])
        assert sim.probes.track(KEY, [server()]).load_times == {}

    sim.run(scene)


def test_asks_a_server_whose_readiness_probe_has_failed(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "_LOADING_SECONDS", 0.01)
    questions, not_ready = list[tuple[str, str]](), True

    async def says_not_ready(_: object, address: str, path: str) -> bool:
        questions.append((address, path))
        return not_ready

    sim.probes = ServerProbes(lambda key: sim.changed.update([key]), sim.read, says_not_ready=says_not_ready)

    def track(**readiness: str) -> ServerAnswers:
        return sim.probes.track(KEY, [server(epoch=(0, not readiness))], readiness=readiness)

    async def scene() -> None:
        nonlocal not_ready
        track()
        await until(lambda: sim.changed[KEY] == 1)
        assert not questions
        failed = {"uid-pod": "/v2/models/a/ready"}
        assert track(**failed).not_ready == {"pod": None}
        await until(lambda: track(**failed).not_ready == {"pod": True})
        # All its models are loaded, but the next question comes soon.
        changed, not_ready = sim.changed[KEY], False
        await until(lambda: sim.changed[KEY] > changed)
        assert track(**failed).not_ready == {"pod": False}
        not_ready = True
        await until(lambda: track(**failed).not_ready == {"pod": True})
        assert track().not_ready == {}

    sim.run(scene)
    assert set(questions) == {("pod:8000", "/v2/models/a/ready")}


def test_asks_no_server_without_a_gpu_where_a_model_runs(sim: Simulation) -> None:
    async def runs_on_cpu(*_: object) -> bool:
        pytest.fail("asked")

    sim.probes = ServerProbes(lambda key: sim.changed.update([key]), sim.read, runs_on_cpu=runs_on_cpu)

    async def scene() -> None:
        sim.probes.track(KEY, [server()], gpu_models={"uid-pod": ()})
        await until(lambda: sim.changed[KEY])
        assert sim.probes.track(KEY, [server()]).on_cpu == {}

    sim.run(scene)


def test_polling_continues_after_an_unexpected_error(sim: Simulation) -> None:
    async def scene() -> None:
        sim.answers["other"] = READY
        sim.answers["pod"] = READY
        sim.wrong = True
        sim.probes.track("ns/bad", [server()])
        await until(lambda: sim.polls["pod"])
        sim.wrong = False
        sim.probes.track(KEY, [server("other")])
        await until(lambda: sim.changed[KEY] and sim.polls["pod"] > 1)

    sim.run(scene)
