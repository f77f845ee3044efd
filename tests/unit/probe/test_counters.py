"""Reads request counters from valid and invalid metrics pages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping

import pytest

from support import bad_servers
from triton_operator.api.servers import Counters
from triton_operator.probe import counters, fetch
from triton_operator.probe.fetch import FetchError, Limits

PAGE = """\
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="a",version="1"} 10
nv_inference_request_success{model="a",version="2"} 5
nv_inference_request_success{model="b",version="1"} 7
# TYPE nv_inference_request_failure counter
nv_inference_request_failure{model="a",reason="OTHER",version="1"} 1
nv_inference_request_failure{model="a",reason="BACKEND",version="1"} 2
nv_inference_count{model="a",version="1"} 1000
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="a",version="1"} 4
"""


def read(page: str | bytes, models: Collection[str] = ("a", "gone")) -> Mapping[str, Counters]:
    behave = bad_servers.answers(page.encode() if isinstance(page, str) else page)
    with bad_servers.server("127.0.0.1", behave, 0) as served:
        return get_counters(served.address, models)


def get_counters(address: str, models: Collection[str] = ("a",)) -> Mapping[str, Counters]:
    async def run() -> Mapping[str, Counters]:
        async with fetch.session() as client:
            return await counters.counters(client, address, models)

    return asyncio.run(run())


def test_sums_versions_and_reasons_of_the_requested_models() -> None:
    assert read(PAGE) == {"a": Counters(success=15, failure=3, pending=4)}
    assert read(PAGE, ["b"]) == {"b": Counters(success=7)}
    assert read("") == {}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e999"])
def test_rejects_a_value_that_no_counter_has(value: str) -> None:
    with pytest.raises(FetchError, match="not Triton's metrics"):
        read(f'nv_inference_request_success{{model="a",version="1"}} {value}\n')


@pytest.mark.parametrize("line", [b'nv_inference_request_success{model="\xff"} 1', b"\xff{", b"<html>"])
def test_ignores_or_rejects_a_page_that_is_not_a_metrics_page(line: bytes) -> None:
    with contextlib.suppress(FetchError):
        assert read(line + b"\n") == {}


def test_rejects_a_line_that_cannot_be_parsed() -> None:
    with pytest.raises(FetchError, match="not Triton's metrics"):
        read('nv_inference_request_success{model="a" x\n')


def test_rejects_a_page_with_too_many_counters() -> None:
    line = 'nv_inference_request_success{model="a",version="1"} 1\n'
    assert read(line * 2000) == {"a": Counters(success=2000)}
    with pytest.raises(FetchError, match="more than 2000"):
        read(line * 2001)


@pytest.mark.parametrize("behave", [bad_servers.hangs, bad_servers.trickles, bad_servers.floods, bad_servers.closes])
def test_reports_an_error_for_a_misbehaving_server(
    behave: bad_servers.Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "LIMITS", Limits(0.5, 0.5, 1 << 20))
    with bad_servers.server("127.0.0.1", behave, 0) as served, pytest.raises(FetchError):
        get_counters(served.address)
