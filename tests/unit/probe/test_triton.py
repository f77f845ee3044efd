"""Triton's repository index, from servers that answer well, badly or not at all."""

from __future__ import annotations

import asyncio
import resource
import time

import pytest

from support import bad_servers
from triton_operator.api.servers import Index, IndexEntry
from triton_operator.probe import fetch, triton
from triton_operator.probe.fetch import FetchError, Limits

READY = (IndexEntry("a", "1", "READY", ""),)
LOADING = (IndexEntry("a", "1", "LOADING", ""),)


def ask(address: str) -> Index:
    async def run() -> Index:
        async with fetch.session() as client:
            return await triton.repository_index(client, address)

    return asyncio.run(run())


def answer(body: bytes, host: str = "127.0.0.1") -> Index:
    with bad_servers.server(host, bad_servers.answers(body), 0) as served:
        return ask(served.address)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_index(host: str) -> None:
    body = b'[{"name": "a", "version": "1", "state": "UNAVAILABLE", "reason": "no file"}, {"name": "b"}]'
    assert answer(body, host) == (IndexEntry("a", "1", "UNAVAILABLE", "no file"), IndexEntry("b", "", "", ""))


@pytest.mark.parametrize(
    "body",
    ["", "{", "[" * 100_000, "null", "5", '"a"', "{}", "[5]", "[[]]", '[{"name": 5}]', '[{"name": ["a"]}]', "[{}]",
     '[{"name": "a", "state": null}]', '[{"name": "a", "version": 1}]', '[{"name": "a", "reason": {}}]',
     '[{"name": "\\ud800"}]'],
)  # fmt: skip
def test_an_answer_that_is_not_tritons(body: str) -> None:
    with pytest.raises(FetchError, match="not a repository index"):
        answer(body.encode())


def test_an_answer_has_limits() -> None:
    entry = b'{"name": "a"}'
    assert len(answer(b"[" + b",".join([entry] * triton.MAX_ENTRIES) + b"]")) == triton.MAX_ENTRIES
    with pytest.raises(FetchError, match="more than 2000 entries"):
        answer(b"[" + b",".join([entry] * (triton.MAX_ENTRIES + 1)) + b"]")
    with pytest.raises(FetchError, match="larger than 256 KiB"):
        answer(b"[" + b" " * (256 << 10) + b"]")
    [long] = answer(b'[{"name": "a", "reason": "' + b"x" * 100_000 + b'"}]')
    assert len(long.reason) == 4096


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
        with redirects as served, pytest.raises(FetchError, match="HTTP status 307"):
            ask(served.address)
        assert other.asked == 0


def test_no_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    assert answer(b'[{"name": "a", "version": "1", "state": "READY"}]') == READY


@pytest.mark.parametrize(
    ("index", "expected"),
    [((), False), (READY, True), (LOADING, False), ((*READY, IndexEntry("b", "", "", "")), True),
     ((IndexEntry("b", "1", "UNAVAILABLE", "unloaded"),), True), ((IndexEntry("b", "1", "UNAVAILABLE", "x"),), False)],
)  # fmt: skip
def test_all_ready(index: Index, expected: bool) -> None:
    assert triton.all_ready(index) is expected
