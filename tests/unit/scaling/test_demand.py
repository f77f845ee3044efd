"""The demand from the counters of servers that are young, restarted, silent or hostile."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_operator.api.servers import History, Sample
from triton_operator.scaling.demand import arrived, cached, demand, generated, queued, streamed


def history(*requests: float, start: float = 0.0, waiting: float = 0.0) -> History:
    """Returns samples every 2 s. The queue grows by a constant number in each."""
    return tuple(Sample(start + 2 * n, count, waiting * n) for n, count in enumerate(requests))


def steady(rate: float, begin: float, end: float) -> History:
    """Returns samples from `begin` to `end` of a server that handles `rate` requests per second."""
    return history(*(100 + 2 * rate * n for n in range(int(end - begin) // 2 + 1)), start=begin)


def of(*histories: History, now: float = 60.0, seconds: float = 60.0, since: float = 0.0) -> float | None:
    named = {f"pod-{n}": history for n, history in enumerate(histories)}
    return demand(named, dict.fromkeys(named, since), now, seconds)


def test_adds_up_the_requests_of_all_servers_and_the_growth_of_their_queues() -> None:
    assert of(steady(10, 0, 60), steady(5, 0, 60)) == pytest.approx(15)
    assert of(history(0, 20, 40, waiting=6), now=4) == pytest.approx(10 + 3)


def test_a_queued_request_counts_when_it_arrives_and_not_again_when_it_is_answered() -> None:
    """A burst of 100 requests, then 2 a second. The server answers 10 a second."""
    burst = tuple(Sample(2 * n, 20 * n, 100 - 16 * n) for n in range(6))
    arrived = (Sample(-2, 0, 0), *burst)
    assert of(burst, now=10) == pytest.approx(2)
    assert of(arrived, now=10) == pytest.approx((100 + 5 * 4) / 12)


def test_a_queue_that_vanishes_in_a_crash_does_not_reduce_the_demand() -> None:
    samples = (Sample(0, 0, 0), Sample(2, 20, 50), Sample(4, 0, 0), Sample(6, 20, 0))
    assert of(samples, now=6) == pytest.approx((20 + 50 + 20) / 6)


def test_counts_the_tokens_of_all_servers() -> None:
    """A counter that falls was reset by a restart."""
    counts = (0, 100, 200, 0, 60)
    samples = tuple(Sample(2.0 * n, 0.0, 50.0 * n, count) for n, count in enumerate(counts))
    assert demand({"a": samples, "b": samples}, {"a": 0, "b": 0}, 8, 60, generated) == 2 * (200 + 60) / 8


def test_tokens_that_could_not_be_read_once_are_not_counted_as_new() -> None:
    read = (1e6, math.nan, 1e6 + 20, 1e6 + 30)
    samples = tuple(Sample(2.0 * n, 0, 0, tokens) for n, tokens in enumerate(read))
    assert demand({"a": samples}, {"a": 0}, 6, 60, generated) == 10 / 6


def gauges(*values: float) -> History:
    """Returns samples every 2 s with these streams, and a hundredth of them as the share of the cache."""
    return tuple(Sample(2.0 * n, 0.0, 0.0, 0.0, value, value / 100) for n, value in enumerate(values))


def test_the_streams_of_all_servers_count_by_their_mean() -> None:
    histories, since = {"a": gauges(0, 8, 8, 2, 2), "b": gauges(*[10.0] * 5)}, {"a": 0.0, "b": 0.0}
    assert demand(histories, since, 8, 60, streamed) == 5 + 10
    assert demand(histories, since, 8, 4, streamed) == 2 + 10
    assert demand(histories, since, 8, 60, cached) == pytest.approx(0.15)


@pytest.mark.parametrize("value", [math.nan, -5.0, -math.inf])
def test_streams_that_could_not_be_read_once_do_not_count(value: float) -> None:
    assert demand({"a": gauges(6, 6, value)}, {"a": 0}, 4, 60, streamed) == 6 * 2 / 4


def test_the_requests_that_wait_on_all_servers() -> None:
    assert queued({"a": history(0, 1, waiting=6), "b": history(0, 1, 2, waiting=1), "c": ()}) == 8


def test_a_server_that_takes_over_requests_does_not_count_them_twice() -> None:
    before = (*steady(10, 0, 40), *history(*[500.0] * 10, start=42))
    assert of(before, steady(10, 40, 60)) == pytest.approx(10, rel=0.05)


def test_the_requests_before_the_first_sample_do_not_count() -> None:
    """A server that is warmed up has counted requests when it is polled first."""
    assert of(history(5000, 5000, 5000), now=4) == 0


def test_requests_before_a_restart_count_once() -> None:
    assert of(history(100, 120, 0, 20, 40), now=8) == pytest.approx(60 / 8)


def test_is_unknown_until_there_are_two_samples_or_while_no_server_answers() -> None:
    assert of(history(0), now=0) is None
    assert of() is None
    assert of(steady(10, 0, 10), now=20) is None


def test_a_silent_server_counts_as_its_last_demand_or_the_mean_of_the_others() -> None:
    assert of(steady(10, 0, 60), steady(30, 0, 50), seconds=10) == pytest.approx(40)
    assert of(steady(10, 0, 60), steady(2, 0, 50), seconds=10) == pytest.approx(20)
    assert of(steady(10, 0, 60), ()) == pytest.approx(20)


def test_a_server_that_was_never_asked_does_not_count() -> None:
    assert of(steady(10, 0, 60), (), since=58) == pytest.approx(10)


SAMPLES = st.lists(st.tuples(*[st.floats(0)] * 5), max_size=6).map(
    lambda numbers: tuple(Sample(2.0 * n, *counts) for n, counts in enumerate(numbers))
)
"""The sum of two finite counters may be infinite."""


@given(st.lists(SAMPLES, max_size=4), st.floats(0, 30), st.sampled_from((10.0, 60.0)))
def test_is_finite_and_never_negative_whatever_servers_answer(
    histories: list[History], now: float, seconds: float
) -> None:
    named = {f"pod-{n}": history for n, history in enumerate(histories)}
    for counted in (arrived, generated, streamed, cached):
        load = demand(named, dict.fromkeys(named, 0.0), now, seconds, counted)
        assert load is None or (load >= 0 and math.isfinite(load))
