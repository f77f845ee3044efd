"""The demand from the counters of servers that are young, restarted, silent or hostile."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_operator.api.servers import Counters, History, Sample, Subject
from triton_operator.scaling.demand import demand, queued


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


def test_a_shrinking_queue_does_not_reduce_the_demand() -> None:
    assert of(history(0, 20, 40, waiting=-6), now=4) == pytest.approx(10)


COUNTERS = {"m": Counters(100, 20, 3), "step": Counters(100, 10, 5), "other": Counters(7, 7, 7)}


def test_counts_the_requests_of_the_entrypoint() -> None:
    assert Subject("m").sample(1, COUNTERS) == Sample(1, 120, 3)
    assert Subject("missing").sample(1, COUNTERS) == Sample(1, 0, 0)


def test_of_an_ensemble_failures_count_half_and_its_steps_have_the_queue() -> None:
    subject = Subject("m", frozenset({"step", "not yet loaded"}), 2)
    assert subject.sample(1, COUNTERS) == Sample(1, 110, 5)
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


SAMPLES = st.lists(st.tuples(st.floats(0), st.floats(0)), max_size=6).map(
    lambda numbers: tuple(Sample(2.0 * n, *one) for n, one in enumerate(numbers))
)
"""The sum of two finite counters may be infinite."""


@given(st.lists(SAMPLES, max_size=4), st.floats(0, 30), st.sampled_from((10.0, 60.0)))
def test_is_finite_and_never_negative_whatever_servers_answer(
    histories: list[History], now: float, seconds: float
) -> None:
    found = of(*histories, now=now, seconds=seconds)
    assert found is None or (found >= 0 and math.isfinite(found))
