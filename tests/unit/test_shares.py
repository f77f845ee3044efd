"""Memory that namespaces share."""

from __future__ import annotations

import random

from triton_operator.shares import Shares


def take(shares: Shares, namespace: str, size: int) -> bool:
    may = shares.may_take(namespace, size)
    if may:
        shares.take(namespace, size)
    return may


def test_one_namespace_takes_all_while_nobody_else_needs_any() -> None:
    shares = Shares(100)
    assert take(shares, "a", 100)
    assert not take(shares, "a", 1)


def test_a_namespace_gets_its_share_when_another_has_taken_all() -> None:
    shares = Shares(100)
    assert take(shares, "greedy", 100)
    assert take(shares, "modest", 50)
    assert not take(shares, "modest", 1)
    assert take(shares, "third", 33)
    assert not take(shares, "third", 1)


def test_who_takes_most_is_refused_first() -> None:
    shares = Shares(100)
    assert take(shares, "greedy", 80)
    assert take(shares, "modest", 20)
    assert not take(shares, "greedy", 1)
    assert take(shares, "modest", 1)


def test_what_is_given_back_can_be_taken_again() -> None:
    shares = Shares(100)
    assert take(shares, "a", 100)
    shares.give_back("a", 100)
    assert take(shares, "b", 100)
    assert not take(shares, "b", 1)


def test_no_more_than_twice_the_total_is_ever_taken() -> None:
    chance, shares, taken = random.Random(1), Shares(1000), list[tuple[str, int]]()
    for _ in range(20_000):
        one = (f"ns-{chance.randrange(30)}", chance.randrange(1, 120))
        if taken and chance.random() < 0.3:
            shares.give_back(*taken.pop(chance.randrange(len(taken))))
        elif take(shares, *one):
            taken.append(one)
        assert sum(size for _, size in taken) <= 2000
