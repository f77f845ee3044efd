"""The schedule of polls, and the delay until the next poll of a server."""

from __future__ import annotations

import pytest

from triton_operator.api.servers import IndexEntry
from triton_operator.probe.schedule import Schedule, server_delay
from triton_operator.probe.triton import IndexAnswer

READY = IndexAnswer((IndexEntry("a", "1", "READY", ""),), all_ready=True)
LOADING = IndexAnswer((IndexEntry("a", "1", "LOADING", ""),), all_ready=False)


def test_key_is_due_once_at_its_last_time() -> None:
    schedule = Schedule[str]()
    assert schedule.next() is None
    for key, when in (("a", 5.0), ("b", 3.0), ("a", 1.0), ("c", 2.0), ("b", 9.0)):
        schedule.put(key, when)
    assert schedule.next() == 1.0
    assert schedule.due(2.5) == ["a", "c"]
    assert schedule.next() == 9.0
    assert schedule.due(8.9) == []
    assert (schedule.due(9.0), schedule.next()) == (["b"], None)


@pytest.mark.parametrize(
    ("answer", "repeats", "expected"),
    [
        (READY, 0, 300), (READY, 50, 300),
        (LOADING, 0, 0.5), (LOADING, 3, 4), (LOADING, 5, 10), (LOADING, 5000, 10),
        (IndexAnswer((), all_ready=False), 5, 10),
        (None, 0, 0.5), (None, 5, 16), (None, 5000, 60),
    ],
)  # fmt: skip
def test_delay_until_the_next_poll_of_a_server(answer: IndexAnswer | None, repeats: int, expected: float) -> None:
    assert server_delay(answer, repeats, 300) == pytest.approx(expected, rel=0.101)
