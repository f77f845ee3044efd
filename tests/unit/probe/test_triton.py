"""Triton's repository index, from servers that answer well, badly or not at all."""

from __future__ import annotations

import asyncio
import json
import resource
import time

import pytest

from support import bad_servers
from triton_operator.api.servers import IndexEntry
from triton_operator.probe import fetch, triton
from triton_operator.probe.fetch import FetchError, Limits, UnusableError
from triton_operator.probe.triton import Answer, parse

READY = (IndexEntry("a", "1", "READY", ""),)


def ask(address: str) -> Answer:
    async def run() -> Answer:
        async with fetch.session() as client:
            return await triton.repository_index(client, address)

    return asyncio.run(run())


def answer(body: bytes, host: str = "127.0.0.1") -> Answer:
    with bad_servers.server(host, bad_servers.answers(body), 0) as served:
        return ask(served.address)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_index(host: str) -> None:
    body = b'[{"name": "a", "version": "1", "state": "UNAVAILABLE", "reason": "no file"}, {"name": "b"}]'
    assert answer(body, host) == Answer((IndexEntry("a", "1", "UNAVAILABLE", "no file"),), settled=False)


@pytest.mark.parametrize(
    ("body", "wrong"),
    [("", "is no JSON"), ("{", "is no JSON"), ("[" * 100_000, "is no JSON"), ('[{"name": "\\ud800"}]', "is no JSON"),
     ("null", "is no list"), ("5", "is no list"), ('"a"', "is no list"), ("{}", "is no list"),
     ("[5]", "has an entry without a name"), ("[[]]", "has an entry without a name"),
     ("[{}]", "has an entry without a name"), ('["a"]', "has an entry without a name"),
     ('[{"name": 5}]', "a field that is no string"), ('[{"name": ["a"]}]', "a field that is no string"),
     ('[{"name": "a", "state": null}]', "a field that is no string"),
     ('[{"name": "a", "version": 1}]', "a field that is no string"),
     ('[{"name": "a", "reason": {}}]', "a field that is no string")],
)  # fmt: skip
def test_an_answer_that_is_not_tritons(body: str, wrong: str) -> None:
    with pytest.raises(UnusableError, match=wrong):
        answer(body.encode())


def test_an_http_error_is_told_by_its_status() -> None:
    with bad_servers.server("127.0.0.1", bad_servers.answers(b"[]", "503 Service Unavailable"), 0) as served:
        with pytest.raises(UnusableError, match="has the HTTP status 503"):
            ask(served.address)


def test_an_answer_has_limits() -> None:
    entry = b'{"name": "a", "state": "READY"}'
    assert len(answer(b"[" + b",".join([entry] * triton.MAX_ENTRIES) + b"]").index) == triton.MAX_ENTRIES
    with pytest.raises(UnusableError, match="lists more than 2000 models to be loaded"):
        answer(b"[" + b",".join([entry] * (triton.MAX_ENTRIES + 1)) + b"]")
    with pytest.raises(UnusableError, match="is larger than 256 KiB"):
        answer(b"[" + b" " * (256 << 10) + b"]")


def test_models_that_were_never_asked_to_load_count_for_no_limit() -> None:
    idle = [{"name": f"model-{n}"} for n in range(5000)]
    loaded = {"name": "a", "version": "1", "state": "READY", "reason": ""}
    assert parse(json.dumps([*idle, loaded]).encode()) == Answer(READY, settled=True)


def test_only_what_the_status_uses_is_kept() -> None:
    listed = [
        {"name": "n" * 300, "version": "1" * 300, "state": "s" * 300, "reason": "r" * 5000},
        {"name": "ready", "version": "1", "state": "READY", "reason": "why not"},
        {"name": "idle"},
        {"name": "old", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
    ]
    long, ready = parse(json.dumps(listed).encode()).index
    assert [len(text) for text in (long.name, long.version, long.state, long.reason)] == [256, 256, 256, 4096]
    assert ready == IndexEntry("ready", "1", "READY", "")


@pytest.mark.parametrize("behave", [
    bad_servers.hangs, bad_servers.trickles, bad_servers.trickles_a_head, bad_servers.trickles_without_a_length,
    bad_servers.floods, bad_servers.floods_a_head, bad_servers.always_continues, bad_servers.compresses,
    bad_servers.closes, bad_servers.speaks_no_http, bad_servers.answers(b"[]", "503 Service Unavailable"),
])  # fmt: skip
def test_a_server_that_misbehaves_costs_little_time_and_memory(
    behave: bad_servers.Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton, "LIMITS", Limits(connect_seconds=0.5, total_seconds=1.0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with bad_servers.server("127.0.0.1", behave, 0) as served:
        began = time.monotonic()
        with pytest.raises(FetchError):
            ask(served.address)
        assert time.monotonic() - began < 20  # and not for ever; of a busy machine a second may be many
    # `compresses` itself takes 64 MiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < (160 << 10)


def test_no_redirect_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    with bad_servers.server("127.0.0.1", bad_servers.answers(b'[{"name": "a"}]'), 0) as other:
        to = f"http://{other.address}/v2/repository/index"
        redirects = bad_servers.server("127.0.0.1", bad_servers.redirects(to), 0)
        with redirects as served, pytest.raises(FetchError, match="has the HTTP status 307"):
            ask(served.address)
        assert other.asked == 0


def test_no_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    assert answer(b'[{"name": "a", "version": "1", "state": "READY"}]').index == READY


@pytest.mark.parametrize(
    ("listed", "settled"),
    [([], False), (["READY"], True), (["READY", ""], True), ([""], True), (["LOADING"], False),
     (["READY", "UNAVAILABLE"], False)],
)  # fmt: skip
def test_a_server_is_settled_when_all_models_are_ready(listed: list[str], settled: bool) -> None:
    body = json.dumps([{"name": f"m{n}", "state": state} for n, state in enumerate(listed)]).encode()
    assert parse(body).settled is settled
