"""Reads request counters from valid and invalid metrics pages."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Collection, Mapping

import pytest

from support import bad_servers
from support.growth import assert_linear
from triton_operator.api.monitoring import Series
from triton_operator.api.series import NAMES
from triton_operator.api.servers import Counters, ServerCounters, Subject
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
    return read_all(page, models).models


def read_all(page: str | bytes, models: Collection[str] = ("a",), **series: tuple[Series, ...]) -> ServerCounters:
    behave = bad_servers.answers(page.encode() if isinstance(page, str) else page)
    with bad_servers.server("127.0.0.1", behave, 0) as served:
        return get_counters(served.address, Subject(next(iter(models)), frozenset(models), **series))


def get_counters(address: str, subject: Subject) -> ServerCounters:
    async def run() -> ServerCounters:
        client = fetch.HttpClient()
        return await counters.counters(client, address, subject)

    return asyncio.run(run())


TOKENS = """\
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{model="a",version="1"} 40
vllm:generation_tokens_total{model="b",version="1"} 2
vllm:generation_tokens_total_other{model="b",version="1"} 1000
tokens 7
"""


def test_sums_the_tokens_of_all_models() -> None:
    assert read_all(PAGE + TOKENS).tokens == 0
    reading = read_all(PAGE + TOKENS, tokens=(Series("vllm:generation_tokens_total"),))
    assert (reading.tokens, reading.models) == (42, read(PAGE))
    assert read_all(TOKENS, tokens=(Series("tokens"),)).tokens == 7
    assert read_all(TOKENS, tokens=(Series("other_tokens"),)).tokens == 0


GAUGES = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model="a",version="1"} 3
vllm:num_requests_running{model="b",version="1"} 4
vllm:num_requests_waiting{model="b",version="1"} 2
vllm:gpu_cache_usage_perc{model="a",version="1"} 0.25
vllm:gpu_cache_usage_perc{model="b",version="1"} 0.75
nv_trt_llm_request_metrics{model="a",request_type="active",version="1"} 11
nv_trt_llm_request_metrics{model="a",request_type="scheduled",version="1"} 5
nv_trt_llm_request_metrics{model="a",request_type="waiting",version="1"} 6
nv_trt_llm_request_metrics{model="a",request_type="max",version="1"} 512
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="a",version="1"} 90
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="a",version="1"} 0.5
"""


@pytest.mark.parametrize(("names", "streams", "cache"), [("VLLM", 9, 0.75), ("TensorRTLLM", 11, 0.5)])
def test_sums_the_streams_of_all_models_and_finds_the_fullest_cache(names: str, streams: float, cache: float) -> None:
    named = NAMES[names]
    series = {"streams": (named["running"], named["waiting"]), "cache": (named["cache_usage"],)}
    reading = read_all(PAGE + GAUGES, **series)
    assert (reading.streams, reading.cache, reading.models) == (streams, cache, read(PAGE, ["a"]))
    reading = read_all(PAGE, **series)
    assert (reading.streams, reading.cache) == (0, 0)


@pytest.mark.parametrize("names", [("gpu",), ("kv",), ("gpu", "kv")], ids="+".join)
def test_the_cache_has_an_older_and_a_newer_name(names: tuple[str, ...]) -> None:
    page = "".join(f'vllm:{name}_cache_usage_perc{{model="a",version="1"}} 0.25\n' for name in names)
    assert read_all(PAGE + page, cache=(NAMES["VLLM"]["cache_usage"],)).cache == 0.25


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
def test_requests_count_also_if_the_gauges_cannot_be_read(value: str) -> None:
    reading = read_all(f"{PAGE}streams 1\nused {value}\nopen {value}\n", streams=(Series("streams"), Series("open")),
                       cache=(Series("used"),))  # fmt: skip
    assert math.isnan(reading.streams)
    assert math.isnan(reading.cache)
    assert reading.models == read(PAGE, ["a"])


def test_sums_versions_and_reasons_of_the_requested_models() -> None:
    assert read(PAGE) == {"a": Counters(success=15, failure=3, pending=4)}
    assert read(PAGE, ["b"]) == {"b": Counters(success=7)}
    assert read("") == {}
    canceled = 'nv_inference_request_failure{model="a",reason="CANCELED",version="1"} 4\n'
    assert read(PAGE + canceled) == {"a": Counters(success=15, failure=7, pending=4, canceled=4)}


def test_requests_count_also_if_the_tokens_cannot_be_read() -> None:
    many = "".join(f'tokens{{user="{n}"}} 1\n' for n in range(2001))
    for page in (many, "tokens NaN\n"):
        reading = read_all(PAGE + page, tokens=(Series("tokens"),))
        assert math.isnan(reading.tokens)
        assert reading.models == read(PAGE, ["a"])


def test_a_counter_of_requests_may_count_the_tokens() -> None:
    reading = read_all(PAGE, tokens=(Series("nv_inference_request_success"),))
    assert (reading.tokens, reading.models) == (22, read(PAGE, ["a"]))


def test_rejects_a_line_whose_name_goes_beyond_that_of_the_counter() -> None:
    with pytest.raises(FetchError, match="not Triton's metrics"):
        read('nv_inference_request_success foo{model="m"} 1\n')


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e999"])
def test_rejects_a_value_that_no_counter_has(value: str) -> None:
    with pytest.raises(FetchError, match="not Triton's metrics"):
        read(f'nv_inference_request_success{{model="a",version="1"}} {value}\n')


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
def test_a_wrong_value_of_another_model_does_not_matter(value: str) -> None:
    others = f'nv_inference_pending_request_count{{model="other",version="1"}} {value}\ntokens{{of="other"}} {value}\n'
    reading = read_all(PAGE + others + 'tokens{of="a"} 5\n', tokens=(Series("tokens", (("of", "a"),)),))
    assert (reading.tokens, reading.models) == (5, read(PAGE, ["a"]))


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
        get_counters(served.address, Subject("a"))


def test_a_long_line_is_not_read() -> None:
    """A parser that looks at the rest of the line for each label takes minutes for 1 MiB."""
    labels = ",".join(f'l{n}="x"' for n in range(100_000))
    with pytest.raises(FetchError, match="a line of nv_inference_request_success has more than 4 KiB"):
        read(f'nv_inference_request_success{{model="a",{labels}}} 1\n'[: (1 << 20) - 10])


@pytest.mark.parametrize("part", [
    "\n", "nv_inference_request_succesX", "\nnv_inference_request_succes", "\nnv_inference_request_success",
    'nv_inference_request_success{model="',
])  # fmt: skip
def test_twice_the_page_takes_twice_the_time(part: str) -> None:
    subject = Subject("a", tokens=(Series("nv_inference_request_successes"),))

    def parse(page: bytes) -> None:
        with contextlib.suppress(FetchError):
            counters.parse(page, subject)

    assert_linear(lambda size: (part * (size // len(part))).encode(), parse, 1 << 20)


def test_reads_escaped_labels_times_and_spaces() -> None:
    page = 'nv_inference_request_success{model="a\\"\\\\\\nb", version="1",} 3 1700000000\n'
    assert read(page, ['a"\\\nb']) == {'a"\\\nb': Counters(success=3)}
