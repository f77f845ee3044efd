"""Changes the models of servers that aren't Triton, or that say too much."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from tritonclient.grpc import service_pb2

from support import bad_servers
from support.fake_triton import FakeTriton, serving
from triton_operator.api.servers import Change, ChangeOutcome, RunningServer
from triton_operator.probe import fetch, model_control

HOST = f"127.97.{os.getpid() % 250}.1"
SERVER = RunningServer("uid", "pod", HOST, (0, True))


def make(load: str = "new", unload: str = "", seconds: float = 1.0) -> ChangeOutcome:
    async def main() -> ChangeOutcome:
        client = fetch.HttpClient()
        change = Change(tuple(load.split()), tuple(unload.split()), ("new",), seconds)
        return await model_control.make(client, SERVER, change)

    return asyncio.run(main())


@pytest.mark.parametrize("behave", [
    bad_servers.hangs, bad_servers.closes, bad_servers.floods, bad_servers.trickles, bad_servers.speaks_no_http,
])  # fmt: skip
def test_a_server_that_is_no_triton_is_unreachable_within_the_time(behave: bad_servers.Behaviour) -> None:
    began = time.monotonic()
    with bad_servers.server(HOST, behave, 8001):
        outcome = make()
    assert (outcome.state, outcome.loaded) == ("Unreachable", ())
    assert len(outcome.message) < 2100
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("size", [100, 1_000_000])
def test_refuses_with_the_words_of_triton_on_one_line(size: int) -> None:
    triton = FakeTriton(failures={"new": "Traceback\n\x1b[31m" + "x" * size})
    with serving(triton, f"{HOST}:8001"):
        outcome = make("good new", "old")
    assert (outcome.state, outcome.loaded, outcome.unloaded) == ("Refused", ("good",), ())
    assert len(outcome.message) < 2100
    assert outcome.message.isprintable()
    assert triton.calls[:2] == ["load good", "load new"]
    assert not any(call.startswith("unload") for call in triton.calls)


def test_a_load_that_never_ends_is_unreachable_without_an_index() -> None:
    with serving(FakeTriton(delay=3), f"{HOST}:8001"):
        assert make(seconds=0.5).state == "Unreachable"


def test_nothing_is_unloaded_if_the_steps_are_unknown() -> None:
    triton = FakeTriton()
    with serving(triton, f"{HOST}:8001"), bad_servers.server(HOST, bad_servers.answers(b"[]"), 8000):
        outcome = make("", "old")
    assert outcome.state == "Refused"
    assert triton.calls == []


def test_writes_the_messages_as_triton_reads_them() -> None:
    name = "m" * 200
    head = b"\x12" + model_control._varint(len(name)) + name.encode()
    request = service_pb2.RepositoryModelUnloadRequest.FromString(head + model_control._WITH_STEPS)
    assert request.model_name == name
    assert request.parameters["unload_dependents"].bool_param is True
