"""The search for a server's capacity: on simulated queues, and on servers that answer at random."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_triton.calibrate.search import (
    CONFIRMATIONS,
    LATENCY,
    MAX_STEPS,
    TPOT,
    TTFT,
    Goal,
    Latency,
    Point,
    SearchResult,
    Step,
    fault,
    proposal,
    run,
    search,
)
from support.queues import Service, capacity, measured, queue


def find(goal: Goal, start: float, measure: Callable[[Step], Point]) -> SearchResult:
    return run(search(goal, start), measure, lambda step, point: None)


def fixed(seconds: float) -> Service:
    return lambda source: seconds


def exponential(mean: float) -> Service:
    return lambda source: source.expovariate(1 / mean)


def noisy(seconds: float) -> Service:
    """A fixed time with the noise of a busy machine: one request of a hundred takes twice as long."""
    return lambda source: seconds * (2 if source.random() < 0.01 else 1) * source.uniform(0.98, 1.02)


@pytest.mark.parametrize(
    ("servers", "service", "mean", "target"),
    [
        (1, fixed(0.02), 0.02, 0.2), (2, fixed(0.02), 0.02, 0.2), (4, fixed(0.02), 0.02, 0.06),
        (1, exponential(0.02), 0.02, 0.3), (3, exponential(0.05), 0.05, 0.5), (1, noisy(0.02), 0.02, 0.2),
        (8, noisy(0.1), 0.1, 0.4), (1, fixed(0.1), 0.1, 0.8),
    ],
)  # fmt: skip
def test_finds_the_capacity_of_a_queue(servers: int, service: Service, mean: float, target: float) -> None:
    """Within 12 % of a simulation of 20,000 requests; the median of three searches is within 8 %."""
    truth = capacity(target, servers, service, 1.2 * servers / mean)
    rates = []
    for seed in range(3):
        outcome = find(Goal({LATENCY: target}, limit=3600), 0.5 / mean, queue(servers, service, random.Random(seed)))
        assert outcome.rate is not None, outcome.reason
        assert len(outcome.confirmations) >= CONFIRMATIONS
        rates.append(outcome.rate)
    assert rates == pytest.approx([truth] * 3, rel=0.12)
    assert sorted(rates)[1] == pytest.approx(truth, rel=0.08)


def test_a_start_above_the_capacity_halves_the_rate() -> None:
    outcome = find(Goal({LATENCY: 0.2}), 800, queue(1, fixed(0.02), random.Random(0)))
    assert outcome.rate == pytest.approx(capacity(0.2, 1, fixed(0.02), 60), rel=0.12)
    assert [p.rate for p in outcome.points[:4]] == [800, 400, 200, 100]


def constant(p99: float, **changes: float) -> Callable[[Step], Point]:
    def measure(step: Step) -> Point:
        values = {"sent": step.rate, "requests": 100, "failures": 0, "took": step.seconds, **changes}
        return Point(step.phase, step.rate, latencies={LATENCY: Latency(p99 / 2, p99)}, **values)  # type: ignore[arg-type]

    return measure


def test_a_load_generator_at_its_limit_gives_a_lower_bound() -> None:
    def measure(step: Step) -> Point:
        sent = min(step.rate, 700.0)
        return Point(step.phase, step.rate, sent, {LATENCY: Latency(0.001, 0.002)}, 1000, 0, step.seconds)

    outcome = find(Goal({LATENCY: 0.2}), 100, measure)
    assert (outcome.rate, outcome.at_least) == (700, True)
    assert len(outcome.confirmations) == CONFIRMATIONS


def test_failures_before_any_success_end_the_search_with_the_servers_words() -> None:
    def measure(step: Step) -> Point:
        return Point(step.phase, step.rate, step.rate, {}, 50, 1, 1, "bad image")

    outcome = find(Goal({LATENCY: 0.2}), 10, measure)
    assert outcome.rate is None
    assert outcome.reason == "1 of 50 requests failed at 10 requests/s: bad image"
    assert len(outcome.points) == 1


def test_failures_above_a_rate_are_a_limit() -> None:
    def measure(step: Step) -> Point:
        failures = 3 if step.rate > 130 else 0
        latencies = {LATENCY: Latency(0.01, 0.02)}
        return Point(step.phase, step.rate, step.rate, latencies, 1000, failures, step.seconds, "queue is full")

    outcome = find(Goal({LATENCY: 0.2}), 25, measure)
    assert outcome.rate == pytest.approx(130, rel=0.05)
    assert outcome.rate is not None
    assert outcome.rate <= 130


@pytest.mark.parametrize(("ttft", "tpot"), [(90, 130), (130, 90)])
def test_each_latency_must_meet_its_target(ttft: float, tpot: float) -> None:
    """Above the rates `ttft` and `tpot`, these latencies miss their targets."""

    def measure(step: Step) -> Point:
        first, later = 0.4 if step.rate > ttft else 0.2, 0.05 if step.rate > tpot else 0.02
        latencies = {TTFT: Latency(0.1, first), TPOT: Latency(0.01, later)}
        return Point(step.phase, step.rate, step.rate, latencies, 1000, 0, step.seconds, responses=20_000)

    outcome = find(Goal({TTFT: 0.3, TPOT: 0.04}), 25, measure)
    assert outcome.rate == pytest.approx(90, rel=0.05)
    assert outcome.rate is not None
    assert outcome.rate <= 90
    assert outcome.tokens == pytest.approx(20 * outcome.rate)


def test_a_missed_target_is_named_with_its_latency() -> None:
    latencies = {TTFT: Latency(0.1, 0.4), TPOT: Latency(0.01, 0.05)}
    point = Point("doubling", 10, 10, latencies, 100, 0, 10, responses=2000)
    assert fault(point, Goal({TTFT: 0.3, TPOT: 0.06})) == "p99 of TTFT is 400 ms"
    assert fault(point, Goal({TTFT: 0.3, TPOT: 0.04})) == "p99 of TTFT is 400 ms and p99 of TPOT is 50 ms"
    assert fault(point, Goal({LATENCY: 60})) == "p99 is inf ms", "a latency that wasn't measured meets no target"


def batch(tokens: int, source: random.Random) -> Callable[[Step], Point]:
    """Returns a measurement of a simulated server that gives all open streams a token in each step.

    A step takes 10 ms and 1 ms for each open stream, so TPOT grows with the open streams, and nothing waits.
    """

    def measure(step: Step) -> Point:
        count = max(10, round(step.rate * step.seconds))
        arrivals = deque(accumulate(source.expovariate(step.rate) for _ in range(count)))
        now, steps, ends, seconds = 0.0, 0, deque[tuple[int, float]](), list[float]()
        while arrivals or ends:
            now = now if ends else max(now, arrivals[0])
            while arrivals and arrivals[0] <= now:
                ends.append((steps + tokens, now))
                arrivals.popleft()
            now, steps = now + 0.01 + 0.001 * len(ends), steps + 1
            while ends and ends[0][0] == steps:
                seconds.append((now - ends.popleft()[1]) / tokens)
        values = sorted(seconds)
        latencies = {TPOT: Latency(values[count // 2], values[int(count * 0.99)])}
        return Point(step.phase, step.rate, step.rate, latencies, count, 0, step.seconds, responses=tokens * count)

    return measure


def test_long_answers_are_measured_until_the_number_of_open_streams_is_stable() -> None:
    # At TPOT of 40 ms 30 streams are open, each for 160 s. In two minutes no stream would end.
    goal, rate = Goal({TPOT: 0.04}, limit=1e5), 30 / 160
    rates = [find(replace(goal, answer=160), 0.02, batch(4000, random.Random(seed))).rate or 0 for seed in range(3)]
    assert sorted(rates)[1] == pytest.approx(rate, rel=0.12)
    assert (find(goal, 0.02, batch(4000, random.Random(0))).rate or 0) > 1.5 * rate, "too short"


def test_a_target_that_is_missed_at_every_rate_gives_no_rate() -> None:
    outcome = find(Goal({LATENCY: 0.2}, limit=1e6), 10, constant(0.3))
    assert outcome.rate is None
    assert "a target is missed even at" in outcome.reason


def test_the_time_limit_ends_the_search() -> None:
    outcome = find(Goal({LATENCY: 0.2}, limit=100), 10, queue(1, fixed(0.02), random.Random(0)))
    assert outcome.rate is None
    assert outcome.reason == "the time limit of 100 s is reached"
    assert sum(p.took for p in outcome.points) <= 100


def test_a_failed_confirmation_reduces_the_rate() -> None:
    def measure(step: Step) -> Point:
        limit = 90 if step.phase == "confirmation" else 100
        return measured(step, [0.1 if step.rate <= limit else 0.3] * 100)

    outcome = find(Goal({LATENCY: 0.2}), 25, measure)
    assert outcome.rate is not None
    assert 80 < outcome.rate <= 90
    assert len({p.rate for p in outcome.points if p.phase == "confirmation"}) > 1


def test_measurements_that_contradict_each_other_give_no_rate() -> None:
    def measure(step: Step) -> Point:
        return measured(step, [0.3 if step.phase == "confirmation" else 0.1 if step.rate < 100 else 0.3] * 100)

    outcome = find(Goal({LATENCY: 0.2}, limit=1e6), 25, measure)
    assert outcome.rate is None
    assert "contradict" in outcome.reason


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=300)
@given(st.data(), st.floats(0.001, 100), st.floats(1e-9, 1e9), st.floats(1, 1e5))
def test_every_search_ends_and_proposes_only_a_confirmed_rate(
    data: st.DataObject, target: float, start: float, limit: float
) -> None:
    goal = Goal({LATENCY: target}, limit=limit)
    steps: list[Step] = []

    def measure(step: Step) -> Point:
        steps.append(step)
        good = data.draw(st.booleans())
        latency = target / 2 if good else data.draw(NUMBERS)
        sent = step.rate if good else data.draw(NUMBERS)
        failures = 0 if good else data.draw(st.integers(-1, 10))
        latencies = {LATENCY: Latency(latency, latency)}
        return Point(
            step.phase, step.rate, sent, latencies, data.draw(st.integers(0, 1000)), failures,
            data.draw(st.sampled_from([step.seconds, 0.0, -1.0])), "words",
        )  # fmt: skip

    outcome = find(goal, start, measure)
    assert len(steps) <= MAX_STEPS
    assert all(0 < step.rate < math.inf and 0 < step.seconds <= 120 for step in steps)
    assert (outcome.rate is None) == bool(outcome.reason)
    if outcome.rate is not None:
        last = outcome.points[-CONFIRMATIONS:]
        assert [(p.phase, p.rate) for p in last] == [("confirmation", outcome.rate)] * CONFIRMATIONS
        assert sum(bool(fault(p, goal)) for p in last) <= 1
        assert not any(p.failures for p in last)
        assert 0 < Decimal(proposal(outcome.rate)) <= Decimal(outcome.rate) * Decimal("1.000001")


@given(st.floats(0.005, 1e6))
def test_a_proposal_is_a_plain_number_rounded_down_to_three_digits(rate: float) -> None:
    text = proposal(rate)
    assert "e" not in text.lower()
    assert 0.99 * rate <= float(text) <= rate * 1.000001


@pytest.mark.parametrize(
    ("rate", "text"), [(49.96, "49.9"), (100, "100"), (1234.5, "1230"), (0.0456, "0.0456"), (7, "7.00")]
)
def test_proposals(rate: float, text: str) -> None:
    assert proposal(rate) == text
