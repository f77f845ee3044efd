"""Shares memory between namespaces."""

from __future__ import annotations

import random

from triton_operator.shares import Shares


def take(shares: Shares, namespace: str, size: int) -> bool:
    may = shares.may_take(namespace, size)
    if may:
        shares.take(namespace, size)
    return may


def test_single_namespace_may_take_everything() -> None:
    shares = Shares(100)
    assert take(shares, "a", 100)
    assert not take(shares, "a", 1)


def test_namespace_gets_its_share_after_another_has_taken_everything() -> None:
    shares = Shares(100)
    assert take(shares, "greedy", 100)
    assert take(shares, "modest", 50)
    assert not take(shares, "modest", 1)
    assert take(shares, "third", 33)
    assert not take(shares, "third", 1)


def test_refuses_the_largest_namespace_first() -> None:
    shares = Shares(100)
    assert take(shares, "greedy", 80)
    assert take(shares, "modest", 20)
    assert not take(shares, "greedy", 1)
    assert take(shares, "modest", 1)


def test_returned_memory_can_be_taken_again() -> None:
    shares = Shares(100)
    assert take(shares, "a", 100)
    shares.give_back("a", 100)
    assert take(shares, "b", 100)
    assert not take(shares, "b", 1)


def test_never_exceeds_twice_the_total() -> None:
    chance, shares, taken = random.Random(1), Shares(1000), list[tuple[str, int]]()
    for _ in range(20_000):
        share = (f"ns-{chance.randrange(30)}", chance.randrange(1, 120))
        if taken and chance.random() < 0.3:
            shares.give_back(*taken.pop(chance.randrange(len(taken))))
        elif take(shares, *share):
            taken.append(share)
        assert sum(size for _, size in taken) <= 2000
