"""What a wait of the tests says when it fails."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from support import api
from support.api import eventually, note, steady


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MIN_WAIT_SECONDS", 0.05)


def failure(wait: Callable[[], object]) -> str:
    with pytest.raises(AssertionError) as failed:
        wait()
    return str(failed.value)


def test_says_what_the_last_look_read() -> None:
    version = itertools.count(1)

    def look() -> bool:
        pod = {
            "metadata": {"name": "a", "resourceVersion": str(next(version)), "labels": {}},
            "status": {"phase": "Pending"},
        }
        note("GET /pods", {"items": [pod]})
        note("kubectl logs a", "no log yet\n")
        return False

    said = failure(lambda: eventually(look, 0, "the pod to run", every=0.01)).splitlines()
    assert said[0] == "not within 0.05 s: the pod to run"
    last = f'{{"name": "a", "resourceVersion": "{next(version) - 1}", "status": {{"phase": "Pending"}}}}'
    assert said[1:] == [f"  GET /pods: {last}", "  kubectl logs a: no log yet"]


def test_says_the_last_value_if_it_says_something() -> None:
    assert failure(lambda: eventually(lambda: [], 0, "pods")).endswith(": pods\n  the last value was []")
    assert failure(lambda: eventually(lambda: False, 0, "pods")).endswith(": pods")


def test_a_wait_within_a_look_hides_nothing() -> None:
    def look() -> bool:
        note("GET /outer", "1")
        eventually(lambda: note("GET /inner", "2") or True, 0)
        note("GET /later", "3")
        return False

    assert failure(lambda: eventually(look, 0, "x")).splitlines()[1:] == ["  GET /outer: 1", "  GET /later: 3"]


def test_the_own_words_of_a_test_replace_the_readings() -> None:
    def look() -> bool:
        note("GET /pods", "none")
        return False

    assert failure(lambda: eventually(look, 0, lambda: "2 of 3 pods")) == "not within 0.05 s: 2 of 3 pods"


def test_looks_again_after_a_pause_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state may have come in a pause that lasts beyond the deadline."""
    clock: Iterator[float] = iter((0, 0, 100, 100))
    monkeypatch.setattr(api.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(api.time, "sleep", lambda _: None)
    states = iter((False, True))
    assert eventually(lambda: next(states), 60)


def test_steady_says_the_last_change() -> None:
    count = itertools.count()
    said = failure(lambda: steady(lambda: next(count), 10, 0.5, "the writes to stop"))
    former, _, last = said.removeprefix("the writes to stop; the last change was from ").partition(" to ")
    assert int(last) == int(former) + 1
