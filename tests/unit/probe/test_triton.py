"""Reads Triton's repository index from good and misbehaving servers."""

from __future__ import annotations

import asyncio
import json
import resource

import pytest

from support import bad_servers, clock
from triton_operator.api.servers import IndexEntry
from triton_operator.probe import fetch, triton
from triton_operator.probe.fetch import FetchError, Limits, UnusableError
from triton_operator.probe.triton import IndexAnswer, parse

READY = (IndexEntry("a", "1", "READY", ""),)


def get_index(address: str) -> IndexAnswer:
    async def run() -> IndexAnswer:
        client = fetch.HttpClient()
        return await triton.repository_index(client, address)

    return asyncio.run(run())


def parse_index(body: bytes, host: str = "127.0.0.1") -> IndexAnswer:
    with bad_servers.server(host, bad_servers.answers(body), 0) as served:
        return get_index(served.address)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_reads_a_repository_index(host: str) -> None:
    body = b'[{"name": "a", "version": "1", "state": "UNAVAILABLE", "reason": "no file"}, {"name": "b"}]'
    assert parse_index(body, host) == IndexAnswer((IndexEntry("a", "1", "UNAVAILABLE", "no file"),), all_ready=False)


@pytest.mark.parametrize(
    ("body", "wrong"),
    [("", "isn't JSON"), ("{", "isn't JSON"), ("[" * 100_000, "isn't JSON"), ('[{"name": "\\ud800"}]', "isn't JSON"),
     ("null", "isn't a list"), ("5", "isn't a list"), ('"a"', "isn't a list"), ("{}", "isn't a list"),
     ("[5]", "has an entry without a name"), ("[[]]", "has an entry without a name"),
     ("[{}]", "has an entry without a name"), ('["a"]', "has an entry without a name"),
     ('[{"name": 5}]', "a field that isn't a string"), ('[{"name": ["a"]}]', "a field that isn't a string"),
     ('[{"name": "a", "state": null}]', "a field that isn't a string"),
     ('[{"name": "a", "version": 1}]', "a field that isn't a string"),
     ('[{"name": "a", "reason": {}}]', "a field that isn't a string")],
)  # fmt: skip
def test_rejects_an_answer_that_is_not_a_repository_index(body: str, wrong: str) -> None:
    with pytest.raises(UnusableError, match=wrong):
        parse_index(body.encode())


def test_reports_the_status_of_an_http_error() -> None:
    starting = bad_servers.server("127.0.0.1", bad_servers.answers(b"[]", "503 Service Unavailable"), 0)
    with starting as served, pytest.raises(UnusableError, match="has the HTTP status 503"):
        get_index(served.address)


def test_limits_the_size_of_an_answer() -> None:
    entry = b'{"name": "a", "state": "READY"}'
    assert len(parse_index(b"[" + b",".join([entry] * triton.MAX_ENTRIES) + b"]").index) == triton.MAX_ENTRIES
    with pytest.raises(UnusableError, match="lists more than 2000 models that should be loaded"):
        parse_index(b"[" + b",".join([entry] * (triton.MAX_ENTRIES + 1)) + b"]")
    with pytest.raises(UnusableError, match="is larger than 256 KiB"):
        parse_index(b"[" + b" " * (256 << 10) + b"]")


def test_ignores_models_without_state_when_it_checks_the_limit() -> None:
    idle = [{"name": f"model-{n}"} for n in range(5000)]
    loaded = {"name": "a", "version": "1", "state": "READY", "reason": ""}
    assert parse(json.dumps([*idle, loaded]).encode()) == IndexAnswer(READY, all_ready=True)


def test_keeps_only_what_the_status_uses() -> None:
    listed = [
        {"name": "n" * 300, "version": "1" * 300, "state": "s" * 300, "reason": "r" * 5000},
        {"name": "ready", "version": "1", "state": "READY", "reason": "why not"},
        {"name": "idle"},
        {"name": "old", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
    ]
    answer = parse(json.dumps(listed).encode())
    assert [(entry.name, entry.reason) for entry in answer.unloaded] == [("old", "unloaded")]
    long, ready = answer.index
    assert [len(text) for text in (long.name, long.version, long.state, long.reason)] == [256, 256, 256, 4096]
    assert ready == IndexEntry("ready", "1", "READY", "")


def test_leaves_out_pythons_own_frames_of_an_import() -> None:
    # What Triton 2.51 says about a model.py that imports a missing package.
    reason = (
        "Internal: ModuleNotFoundError: No module named 'skimage'\n\nAt:\n  /models/postprocess/1/model.py(8): <module>"
        "\n  <frozen importlib._bootstrap>(241): _call_with_frames_removed\n"
        "  <frozen importlib._bootstrap_external>(940): exec_module\n"
        "  <frozen importlib._bootstrap>(1178): _find_and_load\n"
    )
    (entry,) = parse(json.dumps([{"name": "postprocess", "state": "UNAVAILABLE", "reason": reason}]).encode()).index
    assert entry.reason == (
        "Internal: ModuleNotFoundError: No module named 'skimage'\n\nAt:\n  /models/postprocess/1/model.py(8): <module>"
    )


@pytest.mark.parametrize("behave", [
    bad_servers.hangs, bad_servers.trickles, bad_servers.trickles_a_head, bad_servers.trickles_without_a_length,
    bad_servers.floods, bad_servers.floods_a_head, bad_servers.always_continues, bad_servers.compresses,
    bad_servers.closes, bad_servers.speaks_no_http, bad_servers.answers(b"[]", "503 Service Unavailable"),
])  # fmt: skip
def test_limits_time_and_memory_for_a_misbehaving_server(
    behave: bad_servers.Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton, "LIMITS", Limits(connect_seconds=0.5, total_seconds=1.0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with bad_servers.server("127.0.0.1", behave, 0) as served:
        began = clock.of_an_idle_machine()
        with pytest.raises(FetchError):
            get_index(served.address)
        assert clock.of_an_idle_machine() - began < 20  # far above total_seconds, for busy machines
    # The simulated server `compresses` itself uses 64 MiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < (160 << 10)


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (b'{"name": "triton", "version": "2.51.0", "extensions": ["classification"]}', "2.51.0"),
        (b'{"name": "triton", "version": "2.72.0dev"}', "2.72.0dev"),
        *[(body, None) for body in (b"[]", b"{}", b"<html>", b"2", b'{"version": 2}', b'{"version": "2.5\\n"}')],
        (b'{"version": "%s"}' % (b"2." * 99), None),
    ],
)
def test_reads_the_version_of_a_server(body: bytes, version: str | None) -> None:
    async def read(address: str) -> str:
        return await triton.server_version(fetch.HttpClient(), address)

    with bad_servers.server("127.0.0.1", bad_servers.answers(body), 0) as served:
        if version is not None:
            assert asyncio.run(read(served.address)) == version
        else:
            with pytest.raises(UnusableError, match=r"^has no version of Triton$"):
                asyncio.run(read(served.address))


def test_does_not_follow_redirects(monkeypatch: pytest.MonkeyPatch) -> None:
    with bad_servers.server("127.0.0.1", bad_servers.answers(b'[{"name": "a"}]'), 0) as other:
        to = f"http://{other.address}/v2/repository/index"
        redirects = bad_servers.server("127.0.0.1", bad_servers.redirects(to), 0)
        with redirects as served, pytest.raises(FetchError, match="has the HTTP status 307"):
            get_index(served.address)
        assert other.connections == 0


def test_does_not_use_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    assert parse_index(b'[{"name": "a", "version": "1", "state": "READY"}]').index == READY


@pytest.mark.parametrize(
    ("listed", "all_ready"),
    [([], False), (["READY"], True), (["READY", ""], True), ([""], True), (["LOADING"], False),
     (["READY", "UNAVAILABLE"], False)],
)  # fmt: skip
def test_all_ready_means_that_all_listed_models_are_ready(listed: list[str], all_ready: bool) -> None:
    body = json.dumps([{"name": f"m{n}", "state": state} for n, state in enumerate(listed)]).encode()
    assert parse(body).all_ready is all_ready
