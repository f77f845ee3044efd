"""Which differences between two sets of servers are found, how soon, and that chance isn't taken for one."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator
from math import comb

import pytest

from triton_operator.api.servers import Sample
from triton_operator.decisions.comparison import FALSE_ALARMS, Both, Counts, Evidence, observe
from unit.scaling.simulation import trace

SLOWER = 1.25
ROUND_SECONDS = 300


class Traffic:
    """Requests to both sets, read every two seconds.

    - `rate`: requests per second. `weight`: the first set's share. `fails`: the share of each set's that fails.
    - `slower`: how many times as long the first set takes. `spread`: of the times, the σ of their logarithms.
    """

    def __init__(
        self,
        seed: int,
        rate: float = 40,
        weight: float = 0.1,
        fails: tuple[float, float] = (0.001, 0.001),
        slower: float = 1.0,
        spread: float = 0.3,
    ) -> None:
        self._random, self._rate, self._weight = random.Random(seed), rate, weight
        self._fails, self._slower, self._spread = fails, slower, spread
        self._open: list[tuple[float, int, float, bool]] = []
        self._counts = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]

    def arrive(self, at: float, number: int) -> None:
        for _ in range(number):
            which = 0 if self._random.random() < self._weight else 1
            seconds = 0.1 * self._random.lognormvariate(0, self._spread) * (1.0 if which else self._slower)
            failed = self._random.random() < self._fails[which]
            heapq.heappush(self._open, (at + self._random.random() + seconds, which, seconds, failed))

    def samples(self, now: float) -> list[Sample]:
        while self._open and self._open[0][0] <= now:
            _, which, seconds, failed = heapq.heappop(self._open)
            counts = self._counts[which]
            counts[0] += 1
            counts[1 if failed else 2] += 1 if failed else seconds
        return [Sample(now, requests, 0, failed=failed, seconds=s) for requests, failed, s in self._counts]

    def rates(self, seconds: int) -> Iterator[int]:
        for _ in range(seconds):
            yield int(self._rate + self._random.random())


def rounds(traffic: Traffic, rates: Iterator[int]) -> Iterator[tuple[float, Evidence]]:
    """Yields the evidence at each poll. A round ends after ROUND_SECONDS, or when the first set is worse."""
    evidence = Evidence(0)
    last: list[list[Sample]] = [[], []]
    for second, number in enumerate(rates):
        traffic.arrive(second, number)
        if second % 2:
            continue
        last = [[*earlier[-2:], sample] for earlier, sample in zip(last, traffic.samples(second), strict=True)]
        first, second_set = ({name: tuple(h)} for name, h in zip("ab", last, strict=True))
        evidence = observe(evidence, first, second_set, second, SLOWER)
        yield second, evidence
        if evidence.is_worse or second - evidence.began >= ROUND_SECONDS:
            evidence = evidence.next_round(second)


def found(traffic: Traffic, seconds: int = 300) -> float:
    """Returns the time at which the first set is worse; infinite if it isn't."""
    seen = rounds(traffic, traffic.rates(seconds))
    return next((at for at, evidence in seen if evidence.is_worse), math.inf)


@pytest.mark.parametrize("weight", [0.05, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_one_that_fails_is_found(weight: float, seed: int) -> None:
    assert found(Traffic(seed, weight=weight, fails=(0.2, 0.001))) <= 24


@pytest.mark.parametrize("weight", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_one_that_takes_half_as_long_again_is_found(weight: float, seed: int) -> None:
    assert found(Traffic(seed, weight=weight, slower=1.5)) <= 100


def test_one_that_becomes_bad_later_is_found_in_the_next_round_at_the_latest() -> None:
    traffic = Traffic(1)
    evidence_of = rounds(traffic, traffic.rates(2 * ROUND_SECONDS + 200))
    for at, evidence in evidence_of:
        assert not evidence.is_worse
        if at >= ROUND_SECONDS + 150:
            break
    traffic._slower = 1.5
    assert any(evidence.is_worse for _, evidence in evidence_of)


@pytest.mark.parametrize("name", ["code", "conv"])
@pytest.mark.parametrize("weight", [0.05, 0.5, 0.95])
def test_equal_ones_are_not_found_worse_in_hours_of_recorded_requests(name: str, weight: float) -> None:
    """With times as different as those of language models. `make bench NAME=traffic` takes 100 hours."""
    traffic = Traffic(7, weight=weight, fails=(0.01, 0.01), spread=1.2)
    seen = rounds(traffic, (int(n) for _ in range(3) for n in trace(name)))
    doubtful = [evidence.is_doubtful for at, evidence in seen if not evidence.is_worse and at - evidence.began >= 298]
    assert len(doubtful) >= 34, "no round ended because of a false alarm"
    assert sum(doubtful) <= 0.25 * len(doubtful)


@pytest.mark.parametrize(("first", "second", "failed"), [(1, 9, 3), (5, 5, 5), (9, 1, 6), (3, 30, 8), (4, 4, 8)])
def test_the_odds_about_failures_are_fair(first: int, second: int, failed: int) -> None:
    """If it makes no difference who answers, the stakes don't grow on average: an exact sum over all outcomes."""
    mean = [0.0, 0.0, 0.0]
    for own in range(max(0, failed - second), min(first, failed) + 1):
        probability = comb(first, own) * comb(second, failed - own) / comb(first + second, failed)
        step = Both(Counts(first, own), Counts(second, failed - own))
        seen = observe(Evidence(0, step=step, step_began=0), {}, {}, 100, SLOWER, times=False)
        mean = [m + probability * math.exp(stake) for m, stake in zip(mean, seen.failures, strict=True)]
    assert all(m <= 1 + 1e-9 for m in mean), mean


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_odds_about_times_are_fair_if_it_is_slower_at_most_every_second_time(share: float) -> None:
    stakes = {}
    for own in (0.1, 10.0):
        window = Both(Counts(20, 0, 20 * own), Counts(20, 0, 20))
        stakes[own] = observe(Evidence(0, window=window, window_began=0), {}, {}, 10, SLOWER).slowness
    means = [share * math.exp(s) + (1 - share) * math.exp(f) for f, s in zip(stakes[0.1], stakes[10.0], strict=True)]
    assert all(mean <= 1 + 1e-9 for mean in means)


def test_one_that_answers_nothing_while_requests_wait_counts_as_slower() -> None:
    evidence = Evidence(0)
    for at in range(0, 240, 2):
        first = (Sample(at, 5, 3),)
        second = tuple(Sample(t, 20 * t, 0, seconds=t) for t in (at, at + 2))
        evidence = observe(evidence, {"a": first}, {"b": second}, at, SLOWER)
    assert evidence.is_worse
    assert evidence.all.first.requests == 0


def test_long_batches_are_no_hang() -> None:
    """Each takes 12 s, and requests always wait."""
    evidence = Evidence(0)
    for at in range(0, 3600, 2):
        done = [(at - began) // 12 for began in (0, 4, 8)]
        first = (Sample(at, 8 * done[0], 3, seconds=8 * 12 * done[0]),)
        second = (Sample(at, 8 * sum(done), 3, seconds=8 * 12 * sum(done)),)
        evidence = observe(evidence, {"a": first}, {"b": second}, at, SLOWER)
        assert not evidence.is_worse, at
    assert evidence.is_slow < 1


@pytest.mark.parametrize("skew", [0.2, 1.0])
def test_an_outage_of_both_that_is_read_a_moment_apart_is_no_difference(skew: float) -> None:
    evidence = Evidence(0)
    for at in range(0, 60, 2):
        samples = [
            Sample(at, rate * read, 0, failed=rate * max(0.0, read - 30), seconds=rate * min(read, 30))
            for rate, read in ((100, at + skew), (900, at))
        ]
        evidence = observe(evidence, {"a": (samples[0],)}, {"b": (samples[1],)}, at, SLOWER)
        assert not evidence.is_worse, at


def test_one_without_requests_is_neither_good_nor_worse() -> None:
    evidence = Evidence(0)
    for at in range(0, 600, 2):
        second = tuple(Sample(t, 20 * t, 0, failed=t, seconds=t) for t in (at, at + 2))
        evidence = observe(evidence, {"a": (Sample(at, 5, 0),)}, {"b": second}, at, SLOWER)
    assert (evidence.fails, evidence.is_slow) == (1, 1)


def test_counters_that_begin_again_or_lie_count_nothing() -> None:
    evidence = observe(Evidence(0), {"a": (Sample(0, 100, 0, failed=50),)}, {"b": (Sample(0, 1, 0),)}, 0, SLOWER)
    restarted = {"a": (Sample(2, 3, 0, failed=1),), "new": (Sample(2, 1e300, 0, failed=1e300, seconds=1e300),)}
    evidence = observe(evidence, restarted, {"b": (Sample(2, 1e300, 0),)}, 2, SLOWER)
    assert evidence.all.first == Counts()
    assert evidence.all.second.requests == 1e12, "a lie counts"
    assert not evidence.is_worse


def test_a_hostile_server_makes_no_number_that_ends_the_comparison() -> None:
    evidence = Evidence(0)
    for at in range(0, 60, 2):
        huge = 1e300 * (at % 4)
        first = {"a": (Sample(at, huge, huge, failed=huge, seconds=huge),)}
        evidence = observe(evidence, first, {"b": (Sample(at, at, 0, seconds=at),)}, at, SLOWER)
        assert not math.isnan(evidence.fails + evidence.is_slow)


def test_the_probability_of_a_false_alarm_is_named() -> None:
    at = math.log(2 / FALSE_ALARMS)
    assert Evidence(0, failures=(at,) * 3, slowness=(0.0,) * 3).is_worse
    assert not Evidence(0, failures=(at - 0.1,) * 3, slowness=(0.0,) * 3).is_worse
