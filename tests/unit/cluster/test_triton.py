"""Asking the servers for their models: no oftener than something may have changed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from support import bad_servers
from triton_operator.api.servers import Index, IndexEntry, Server
from triton_operator.cluster import nodes, triton
from triton_operator.cluster.api import ApiError
from triton_operator.cluster.triton import Servers, all_ready

READY = (IndexEntry("a", "1", "READY", ""),)
LOADING = (IndexEntry("a", "1", "LOADING", ""),)


class World:
    def __init__(self) -> None:
        self.now, self.asked, self.answer = 0.0, 0, READY
        self.down = False
        self.servers = Servers(self.ask, lambda: self.now)

    def ask(self, address: str) -> Index:
        self.asked += 1
        if self.down:
            raise OSError
        return self.answer

    def look(self, epoch: tuple[int, bool] = (0, True), uid: str = "u") -> dict[str, Index]:
        return self.servers.indexes("ns/a", [Server(uid, "pod", "127.0.0.1:1", epoch)])


def test_a_server_that_has_all_is_asked_again_only_after_a_while_or_a_change() -> None:
    world = World()
    assert [world.look(), world.look()] == [{"pod": READY}] * 2
    assert world.asked == 1
    world.look(epoch=(1, True))
    assert world.asked == 2
    world.look(epoch=(1, True), uid="another pod of the same name")
    assert world.asked == 3
    world.now += triton.FRESH_SECONDS + 1
    world.look(epoch=(1, True), uid="another pod of the same name")
    assert world.asked == 4


def test_a_server_that_loads_is_asked_each_time() -> None:
    world = World()
    world.answer = LOADING
    world.look()
    world.look()
    assert world.asked == 2


@pytest.mark.parametrize(
    "answer",
    ["", "{", "[" * 100_000, "null", "5", '"a"', "{}", "[5]", "[[]]", '[{"name": 5}]', '[{"name": ["a"]}]', "[{}]",
     '[{"name": "a", "state": null}]', '[{"name": "a", "version": 1}]', '[{"name": "a", "reason": {}}]'],
)  # fmt: skip
def test_an_answer_that_is_not_tritons_is_none(answer: str) -> None:
    with bad_servers.server("127.0.0.1", bad_servers.answers(answer.encode()), 0) as served:
        found = Servers().indexes("ns/a", [Server("u", "pod", served.address, (0, True))])
    assert found == ({"pod": ()} if answer == "{}" else {})


def test_an_answer_with_half_a_character_can_be_written() -> None:
    entry = b'[{"name": "\\ud800", "version": "1", "state": "READY", "reason": "\\udfff"}]'
    with bad_servers.server("127.0.0.1", bad_servers.answers(entry), 0) as served:
        assert triton.repository_index(served.address) == (IndexEntry("?", "1", "READY", "?"),)


@pytest.mark.parametrize("behave", [
    bad_servers.hangs, bad_servers.trickles, bad_servers.trickles_a_head, bad_servers.floods, bad_servers.closes,
    bad_servers.speaks_no_http, bad_servers.answers(b"[]", "503 Service Unavailable"),
])  # fmt: skip
def test_a_server_that_misbehaves_holds_nobody_up(
    behave: bad_servers.Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(triton, "ANSWER_SECONDS", 1.0)
    with bad_servers.server("127.0.0.1", behave, 0) as served:
        began = time.monotonic()
        assert Servers().indexes("ns/a", [Server("u", "pod", served.address, (0, True))]) == {}
        assert time.monotonic() - began < 20  # and not for ever; of a busy machine a second may be many


def test_a_server_that_does_not_answer_is_left_out_and_asked_again() -> None:
    world = World()
    world.down = True
    assert world.look() == {}
    world.down = False
    assert world.look() == {"pod": READY}


def test_a_fleet_that_hangs_takes_little_time_and_keeps_nobody_from_being_asked() -> None:
    world, asked = World(), list[str]()

    def ask(address: str) -> Index:
        asked.append(address)
        if address != "good":
            world.now += 3
            raise OSError
        return LOADING

    servers = Servers(ask, lambda: world.now)
    fleet = [Server(f"uid-{n}", f"bad-{n}", f"bad-{n}", (0, True)) for n in range(50)]
    fleet.append(Server("uid-good", "good", "good", (0, True)))
    for _ in range(20):
        began = world.now
        found = servers.indexes("ns/a", fleet)
        assert world.now - began < triton.ASKING_SECONDS + 3
    assert found == {"good": LOADING}
    servers.forget("ns/a")
    assert not servers._silent


def test_what_is_forgotten_is_asked_again() -> None:
    world = World()
    world.look()
    world.servers.forget("ns/a")
    world.look()
    assert world.asked == 2


@pytest.mark.parametrize(
    ("index", "expected"),
    [((), False), (READY, True), (LOADING, False), ((*READY, IndexEntry("b", "", "", "")), True),
     ((IndexEntry("b", "1", "UNAVAILABLE", "unloaded"),), True), ((IndexEntry("b", "1", "UNAVAILABLE", "x"),), False)],
)  # fmt: skip
def test_all_ready(index: Index, expected: bool) -> None:
    assert all_ready(index) is expected


class Cluster:
    def __init__(self, minor: str, *runtimes: str, forbidden: bool = False) -> None:
        self._minor, self._runtimes, self._forbidden = minor, runtimes, forbidden

    def version(self) -> dict[str, Any]:
        return {"major": "1", "minor": self._minor}

    def list(self, kind: object) -> Any:
        if self._forbidden:
            raise ApiError(403, "Forbidden", "no")
        return [{"status": {"nodeInfo": {"containerRuntimeVersion": r}}} for r in self._runtimes]


@pytest.mark.parametrize(
    ("cluster", "delivery"),
    [
        (Cluster("36", "containerd://2.1.0"), "ImageVolume"),
        (Cluster("35+", "containerd://2.2.1", "cri-o://1.33.0"), "ImageVolume"),
        (Cluster("34", "containerd://2.1.0"), "Copy"),
        (Cluster("36", "containerd://2.1.0", "containerd://1.7.27"), "Copy"),
        (Cluster("36", "docker://28.0.0"), "Copy"),
        (Cluster("36"), "Copy"),
        (Cluster("36", forbidden=True), "Copy"),
    ],
)
def test_what_auto_means(cluster: Any, delivery: str) -> None:
    assert nodes.best_delivery(cluster) == delivery
