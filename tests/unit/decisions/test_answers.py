"""The share of equal answers in the status, which is written seldom."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import generate_latest

from answer_comparison.answers import Likeness
from answer_comparison.comparer import Counts
from support import bad_servers
from triton_operator.api import names
from triton_operator.api.servers import Comparison, RunningServer
from triton_operator.api.status import AnswersStatus
from triton_operator.decisions.answers import answers
from triton_operator.probe.comparisons import comparison, parse
from triton_operator.probe.fetch import FetchError, HttpClient


def test_adds_up_what_the_servers_say() -> None:
    one = Comparison(10, 2, 3, 4, {"Y": 3, "Z": 1}, {"no connection": 2})
    other = Comparison(5, 0, 1, 0, {"A": 1, "B": 1, "Y": 1}, {})
    assert answers([one, other], None) == AnswersStatus(
        compared=21, equal=17, same=15, varying=4, not_compared=2,
        message="different: Y (4), A (1), B (1) and 1 more; not compared: no connection (2)",
    )  # fmt: skip


def test_nothing_is_known_before_the_first_answer() -> None:
    assert answers([], None) is None
    assert answers([Comparison()], None) is None
    before = answers([Comparison(3)], None)
    assert answers([], before) == answers([Comparison()], before) == before, "its servers aren't ready now"
    assert answers([Comparison(varying=1)], None) is not None


def test_a_number_is_written_when_it_has_about_doubled() -> None:
    written, known = 0, None
    for number in range(1, 10_001):
        found = answers([Comparison(number, different=number // 100)], known)
        written, known = written + (found != known), found
    assert written == 14 + 7
    assert known is not None
    assert known.compared > 8192


def test_servers_that_begin_again_are_told_as_they_are() -> None:
    before = answers([Comparison(1000)], None)
    assert answers([Comparison(different=2, outputs={"Y": 2})], before) == AnswersStatus(
        compared=2, equal=0, same=0, message="different: Y (2)"
    )


def test_reads_what_the_container_writes() -> None:
    counts = Counts()
    assert parse(generate_latest(counts.registry)) == Comparison()
    for likeness in (Likeness.EXACT, Likeness.EXACT, Likeness.CLOSE, Likeness.DIFFERENT):
        counts.compared({'an "odd"\n name': likeness, "other": Likeness.EXACT})
    counts.varying()
    counts.not_compared("reason")
    expected = Comparison(2, 1, 1, 1, {'an "odd"\n name': 1}, {"reason": 1})
    page = generate_latest(counts.registry)
    assert parse(page) == expected
    server = RunningServer("u", "p", "127.0.0.1", (0, True))
    with bad_servers.server("127.0.0.1", bad_servers.answers(page), names.ANSWERS_PORT):
        assert asyncio.run(comparison(HttpClient(), server)) == expected


def test_names_are_counted_up_to_a_number() -> None:
    counts = Counts()
    for number in range(30):
        counts.compared({f"output {number}": Likeness.DIFFERENT})
    outputs = parse(generate_latest(counts.registry)).outputs
    assert (len(outputs), outputs["output 19"], outputs["others"]) == (21, 1, 10)
    counts.compared({"x" * 5000: Likeness.DIFFERENT})
    assert parse(generate_latest(counts.registry)).outputs["others"] == 11


@pytest.mark.parametrize("value", ["1e308", "1e13", "-1", "NaN", "+Inf", "x"])
def test_a_page_of_something_else_is_refused(value: str) -> None:
    """A model may take the port before the container does."""
    with pytest.raises(FetchError):
        parse(f'triton_operator_compared_answers_total{{result="exact"}} {value}\n'.encode())
