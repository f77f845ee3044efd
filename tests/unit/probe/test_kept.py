"""Answers of servers, within one bound for all."""

from __future__ import annotations

import sys
import tracemalloc

import orjson
import pytest

from triton_operator.probe.kept import KeptAnswers, size_of
from triton_operator.probe.triton import Answer, parse


def answer(number: int, models: int = 10, reason: str = "") -> Answer:
    state = "UNAVAILABLE" if reason else "READY"
    listed = [{"name": f"m-{number}-{n}", "version": "1", "state": state, "reason": reason} for n in range(models)]
    return parse(orjson.dumps(listed))


@pytest.mark.parametrize("reason", ["", "no such file: model.onnx", "\U0001f6a6" * 40])
def test_a_size_is_what_the_answer_takes(reason: str) -> None:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [answer(n, 500, reason and f"{reason} {n}") for n in range(20)]
    took = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert sum(map(size_of, kept)) == pytest.approx(took, rel=0.1)


def test_servers_that_give_the_same_answer_share_it() -> None:
    kept = KeptAnswers(2 * size_of(answer(1)))
    first, again = answer(1), answer(1)
    assert kept.keep("ns/a", first) is first
    assert kept.keep("ns/a", again) is first
    assert sys.getrefcount(again) < sys.getrefcount(first)
    assert kept.keep("ns/a", answer(2)) is not None
    assert kept.keep("ns/a", answer(3)) is None
    kept.release("ns/a", first)
    assert kept.keep("ns/a", answer(3)) is None, "one server still gives it"
    kept.release("ns/a", first)
    assert kept.keep("ns/a", answer(3)) is not None


def test_a_namespace_with_many_answers_takes_no_room_of_others() -> None:
    kept = KeptAnswers(20 * size_of(answer(1)))
    taken = sum(kept.keep(f"greedy/{n % 7}", answer(n)) is not None for n in range(100))
    assert taken >= 19
    assert all(kept.keep("modest/a", answer(n)) for n in range(9))
    assert kept.keep("greedy/0", answer(1000)) is None
    for n in range(taken):
        kept.release(f"greedy/{n % 7}", answer(n))
    for n in range(9):
        kept.release("modest/a", answer(n))
    assert not kept._kept
    assert not kept._shares._taken
