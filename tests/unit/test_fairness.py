"""Fair queueing and token buckets."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.profiles import examples
from triton_operator.fairness import FairQueue, TokenBuckets


def filled(seats: int, **items: int) -> FairQueue[str, str]:
    """Returns a queue in which each flow has the given number of items, named a0, a1, …"""
    queue = FairQueue[str, str](seats)
    for flow, count in items.items():
        for number in range(count):
            queue.put(flow, f"{flow}{number}")
    return queue


def taken(queue: FairQueue[str, str], limit: int = 1000) -> list[str]:
    """Returns the items that get a seat, in order."""
    items = (queue.take() for _ in range(limit))
    return list(itertools.takewhile(lambda item: item is not None, items))  # type: ignore[arg-type]


def test_flows_take_turns_and_each_is_first_in_first_out() -> None:
    queue, order = filled(1, a=3, b=1, c=2), []
    while (item := queue.take()) is not None:
        order.append(item)
        queue.leave(item[0])
    assert order == ["a0", "b0", "c0", "a1", "c1", "a2"]


def test_flow_occupies_at_most_as_many_seats_as_remain_free() -> None:
    assert taken(filled(8, a=100)) == ["a0", "a1", "a2", "a3"]
    assert Counter(item[0] for item in taken(filled(8, a=9, b=9, c=9, d=9))) == {"a": 2, "b": 2, "c": 2, "d": 1}


def test_new_flow_gets_a_seat_at_once_despite_many_items_of_another() -> None:
    queue = filled(8, a=100)
    assert len(taken(queue)) == 4
    for flow, seats in (("b", 2), ("c", 1), ("d", 1)):
        for number in range(9):
            queue.put(flow, f"{flow}{number}")
        assert taken(queue) == [f"{flow}{number}" for number in range(seats)]
    queue.put("e", "e0")
    assert taken(queue) == [], "no seat is left"
    queue.leave("a")
    assert taken(queue) == ["e0"], "the flows before it have their share"


def shares(costs: dict[str, float], seconds: float) -> dict[str, float]:
    """Returns the time of each flow on one seat if items of this cost always wait."""
    queue, used = filled(1, **dict.fromkeys(costs, 2)), Counter[str]()
    while used.total() < seconds:
        flow = queue.take()[0]  # type: ignore[index]
        queue.put(flow, flow)
        queue.leave(flow, costs[flow])
        used[flow] += costs[flow]  # type: ignore[assignment]
    return dict(used)


def test_flows_share_the_cost_and_not_the_turns() -> None:
    used = shares({"a": 1.0, "b": 0.1, "c": 0.01}, 300)
    assert all(abs(part - 100) <= 1 for part in used.values()), used


def test_a_flow_alone_gets_every_turn_and_gives_way_to_one_that_comes() -> None:
    queue = filled(1, a=1000)
    for _ in range(100):
        assert queue.take() is not None
        queue.leave("a", 1.0)
    order = []
    for number in range(50):
        queue.put("b", f"b{number}")
    for _ in range(60):
        order.append((item := queue.take() or "")[0])
        queue.leave(item[0], 1.0 if item[0] == "a" else 0.1)
    # The time before counts neither for nor against one of them.
    assert 40 <= Counter(order)["b"] <= 56
    assert order[:2] in (["a", "b"], ["b", "a"], ["b", "b"])


def test_debt_has_a_maximum_and_is_not_lost_without_items() -> None:
    queue = filled(2, a=1, b=1)
    assert taken(queue) == ["a0", "b0"]
    queue.leave("a", 1000.0)
    queue.leave("b", 1.0)
    queue.put("a", "a1")
    order = ""
    for number in range(9):
        queue.put("b", f"b{number}")
        order += (item := queue.take() or "")[0]
        queue.leave(item[0], 1.0)
    assert order == "bbbbabbbb"


@pytest.mark.parametrize("seats", [1, 2, 3])
def test_single_flow_always_gets_a_seat(seats: int) -> None:
    assert taken(filled(seats, a=5))[:1] == ["a0"]


@examples(200)
@given(
    seats=st.integers(1, 12),
    steps=st.lists(st.tuples(st.sampled_from("pptl"), st.sampled_from("abcdefgh")), max_size=200),
)
def test_never_gives_a_seat_twice_or_withholds_it_from_a_flow_without_one(
    seats: int, steps: list[tuple[str, str]]
) -> None:
    queue, waiting, seated = FairQueue[str, str](seats), Counter[str](), Counter[str]()
    for what, flow in steps:
        if what == "p":
            queue.put(flow, flow)
            waiting[flow] += 1
        elif what == "l" and seated[flow]:
            queue.leave(flow)
            seated[flow] -= 1
        elif what == "t":
            free, item = seats - seated.total(), queue.take()
            entitled = {f for f in waiting if waiting[f] and seated[f] < free}
            assert (item in entitled) if entitled else item is None
            if item is not None:
                waiting[item] -= 1
                seated[item] += 1
        assert len(queue) == waiting.total()
        assert seated.total() <= seats


def test_bucket_gives_its_burst_and_then_one_token_per_interval() -> None:
    buckets = TokenBuckets[str](3, 10.0)
    times = []
    for now in range(100):
        if not buckets.wait("a", now):
            buckets.spend("a", now)
            times.append(now)
    assert times == [0, 1, 2, 10, 20, 30, 40, 50, 60, 70, 80, 90]


def test_wait_lasts_until_the_next_token_of_that_flow() -> None:
    buckets = TokenBuckets[str](2, 10.0)
    for _ in range(2):
        assert buckets.wait("a", 100.0) == 0
        buckets.spend("a", 100.0)
    assert buckets.wait("a", 104.0) == 6.0
    assert buckets.wait("b", 104.0) == 0
    assert buckets.wait("a", 200.0) == 0


def test_full_bucket_takes_no_memory() -> None:
    buckets = TokenBuckets[int](20, 0.5)
    for flow in range(10_000):
        buckets.spend(flow, flow / 10)
    assert len(buckets._full_at) <= 6
