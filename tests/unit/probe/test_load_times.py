"""Reads how long models took to load, from valid and invalid metrics pages."""

from __future__ import annotations

import asyncio

import pytest

from support import bad_servers
from triton_operator.api.servers import LoadTimes
from triton_operator.probe import fetch
from triton_operator.probe.fetch import FetchError
from triton_operator.probe.load_times import has_load_times, load_times

PAGE = """\
# HELP nv_model_load_duration_secs Model load time in seconds
# TYPE nv_model_load_duration_secs gauge
nv_model_load_duration_secs{model="a",version="1"} 1.517791169
nv_model_load_duration_secs{model="a",version="2"} 0.25
nv_model_load_duration_secs{model="b",version="1"} 90.1
"""


def read(page: str) -> LoadTimes:
    async def run(address: str) -> LoadTimes:
        return await load_times(fetch.HttpClient(), address)

    with bad_servers.server("127.0.0.1", bad_servers.answers(page.encode()), 0) as served:
        return asyncio.run(run(served.address))


def line(value: object, model: str = "a") -> str:
    return f'nv_model_load_duration_secs{{model="{model}",version="1"}} {value}\n'


def test_reads_the_time_of_each_version() -> None:
    assert read(PAGE) == {("a", "1"): 1.517791169, ("a", "2"): 0.25, ("b", "1"): 90.1}


def test_a_server_that_reports_none_has_none() -> None:
    assert read('nv_inference_count{model="a",version="1"} 1000\n') == {}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300"])
def test_leaves_out_what_is_no_time(value: str) -> None:
    assert read(line(value) + line(2, "b")) == {("b", "1"): 2}


def test_of_many_models_the_slowest_count() -> None:
    times = read("".join(line(n, f"m{n}") for n in range(300)))
    assert (len(times), min(times.values()), max(times.values())) == (100, 200, 299)


@pytest.mark.parametrize("page", [line("soon"), line(1) * 2001, line(1, "x" * 5000), "x" * (5 << 20)])
def test_rejects_pages_that_are_not_from_triton(page: str) -> None:
    with pytest.raises(FetchError):
        read(page)


def test_servers_from_24_11_on_measure_it() -> None:
    versions = ["2.51.0", "2.52.0", "2.71.0", "3.0", "2.52.0-rc.1"]
    assert [has_load_times(version) for version in versions] == [False, True, True, True, True]
