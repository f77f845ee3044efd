"""Checks the limit on the total size of the servers' answers."""

from __future__ import annotations

import sys
import tracemalloc

import orjson
import pytest

from triton_operator.probe.answer_cache import AnswerCache, size_of
from triton_operator.probe.triton import IndexAnswer, parse


def answer(number: int, models: int = 10, reason: str = "") -> IndexAnswer:
    state = "UNAVAILABLE" if reason else "READY"
    listed = [{"name": f"m-{number}-{n}", "version": "1", "state": state, "reason": reason} for n in range(models)]
    return parse(orjson.dumps(listed))


@pytest.mark.parametrize("reason", ["", "no such file: model.onnx", "\U0001f6a6" * 40])
def test_size_of_equals_the_allocated_memory(reason: str) -> None:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    answers = [answer(n, 500, reason and f"{reason} {n}") for n in range(20)]
    took = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert sum(map(size_of, answers)) == pytest.approx(took, rel=0.1)


def test_stores_equal_answers_once() -> None:
    cache = AnswerCache(2 * size_of(answer(1)))
    first, again = answer(1), answer(1)
    assert cache.add("ns/a", first) is first
    assert cache.add("ns/a", again) is first
    assert sys.getrefcount(again) < sys.getrefcount(first)
    assert cache.add("ns/a", answer(2)) is not None
    assert cache.add("ns/a", answer(3)) is None
    cache.release("ns/a", first)
    assert cache.add("ns/a", answer(3)) is None, "another server still gives this answer"
    cache.release("ns/a", first)
    assert cache.add("ns/a", answer(3)) is not None


def test_namespace_with_many_answers_leaves_room_for_others() -> None:
    cache = AnswerCache(20 * size_of(answer(1)))
    taken = sum(cache.add(f"greedy/{n % 7}", answer(n)) is not None for n in range(100))
    assert taken >= 19
    assert all(cache.add("modest/a", answer(n)) for n in range(9))
    assert cache.add("greedy/0", answer(1000)) is None
    for n in range(taken):
        cache.release(f"greedy/{n % 7}", answer(n))
    for n in range(9):
        cache.release("modest/a", answer(n))
    assert not cache._entries
    assert not cache._shares._taken
