"""Compares the requests of two sets of servers over time: does one fail more often, or is it slower? Pure.

Both tests are sequential: they may be looked at as often as one likes. Each starts with a stake of 1 and bets on every
new piece of evidence that the first set is worse, at odds that are fair if it isn't. So the stake grows on average only
if it is worse, and by Ville's inequality it reaches 1 / FALSE_ALARMS at any time with at most that probability
otherwise (Ramdas et al., Game-theoretic statistics and safe anytime-valid inference, 2023).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from triton_operator.api.servers import History, Sample

FALSE_ALARMS = 1e-3
"""The probability with which a round finds a set worse that isn't."""
_DOUBT = 10.0
"""A stake on failures from which on a set isn't called good, although it isn't known to be worse. One failure that
happens to be of the first set makes a smaller one, and may be the only one for hours."""
_STEP_SECONDS = 4.0
"""The shortest time that counts as the same time: two polls."""
_MANY = 20
"""Requests of each set for a comparison of their times. The mean of fewer is too often less than that of many others,
if the times of single requests differ as much as those of language models."""
_MOST_GROWTH = math.log(30.0)
"""By how much one step may multiply a stake on failures. When the failures of both sets begin at one moment, they are
read from one set up to seconds before the other."""
_TIMES_AS_OFTEN = (2.0, 5.0, 20.0)
"""How many times as often the first set fails, in the bets about failures. About 1.4 times isn't noticed."""
_SLOWER_OF_ALL = (0.65, 0.8, 0.98)
"""In which share of the comparisons it is slower, in the bets about times."""
_MOST = 1e12
"""Requests or seconds between two samples. More is the lie of a hostile server, and would overflow."""


@dataclass(frozen=True)
class Counts:
    """Requests that were answered: all, those that failed, and the sum of the seconds of the others.

    Without those that clients canceled.
    """

    requests: float = 0.0
    failed: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.requests + other.requests, self.failed + other.failed, self.seconds + other.seconds)

    @property
    def mean(self) -> float | None:
        """The mean time of a request that didn't fail, in seconds; None without one."""
        served = self.requests - self.failed
        return self.seconds / served if served > 0 else None


NOTHING = Counts()


@dataclass(frozen=True)
class Both:
    """The same of both sets."""

    first: Counts = NOTHING
    second: Counts = NOTHING

    def __add__(self, other: Both) -> Both:
        return Both(self.first + other.first, self.second + other.second)


@dataclass(frozen=True)
class Evidence:
    """What was seen in one round.

    - `began`: when it began, in seconds of a monotonic clock.
    - `last`: the last sample of each server, by its pod.
    - `all`: the requests of the round. `step`, `window`: those since the last bet about failures, and about times, with
      when they began.
    - `failures`, `slowness`: the logarithms of the stakes, one for each bet.
    """

    began: float
    last: Mapping[str, Sample] = field(default_factory=dict)
    all: Both = Both()
    step: Both = Both()
    step_began: float = -math.inf
    window: Both = Both()
    window_began: float = -math.inf
    failures: tuple[float, ...] = (0.0,) * len(_TIMES_AS_OFTEN)
    slowness: tuple[float, ...] = (0.0,) * len(_SLOWER_OF_ALL)

    @property
    def fails(self) -> float:
        """The stake of the test of failures."""
        return _mean(self.failures)

    @property
    def is_slow(self) -> float:
        """The stake of the test of times."""
        return _mean(self.slowness)

    @property
    def is_worse(self) -> bool:
        """Whether the first set is worse. The mean of two such stakes is one."""
        return (self.fails + self.is_slow) / 2 >= 1 / FALSE_ALARMS

    @property
    def is_doubtful(self) -> bool:
        """Whether that isn't known, but more speaks for it than against it."""
        return self.fails >= _DOUBT or self.is_slow > 1

    def next_round(self, now: float) -> Evidence:
        """Returns a round without evidence that continues with the last samples."""
        return Evidence(now, self.last)


def observe(
    evidence: Evidence,
    first: Mapping[str, History],
    second: Mapping[str, History],
    now: float,
    slower: float,
    *,
    times: bool = True,
) -> Evidence:
    """Returns the evidence with the new samples of both sets.

    - `first`, `second`: the samples of each server, by its pod.
    - `now`: seconds of the clock of the round's beginning.
    - `slower`: how many times as long a request of the first set may take.
    - `times`: whether the times are compared.
    """
    new = Both(_new(first, evidence.last), _new(second, evidence.last))
    last = {pod: history[-1] for histories in (first, second) for pod, history in histories.items() if history}
    evidence = replace(
        evidence, last=last, all=evidence.all + new, step=evidence.step + new, window=evidence.window + new
    )
    if now - evidence.step_began >= _STEP_SECONDS:
        evidence = replace(evidence, failures=_bet_on_failures(evidence), step=Both(), step_began=now)
    if times:
        waits = any(history[-1].waiting > 0 for history in first.values() if history)
        evidence = _compare_times(evidence, now, slower, waits=waits)
    return evidence


def _new(histories: Mapping[str, History], last: Mapping[str, Sample]) -> Counts:
    """Returns what was counted since the last samples. The first sample of a server only says where it begins."""
    counts = NOTHING
    for pod, history in histories.items():
        known = last.get(pod)
        samples = history[-1:] if known is None else (known, *(sample for sample in history if sample.at > known.at))
        for before, after in itertools.pairwise(samples):
            canceled = after.canceled - before.canceled
            # Copies of requests that a client cancels aren't canceled.
            grown = (
                after.requests - before.requests - canceled,
                after.failed - before.failed - canceled,
                after.seconds - before.seconds,
            )
            # One that falls was reset, and the others with it.
            if min(*grown, canceled) >= 0:
                counts += Counts(*(min(_MOST, growth) for growth in grown))
    return counts


def corrected(history: History, failures_per_request: float) -> History:
    """Returns the samples of a server that counts each failed request as often as this."""
    if failures_per_request == 1:
        return history
    return tuple(
        replace(
            sample,
            requests=sample.requests - sample.failed + sample.failed / failures_per_request,
            failed=sample.failed / failures_per_request,
            canceled=sample.canceled / failures_per_request,
        )
        for sample in history
    )


def _bet_on_failures(evidence: Evidence) -> tuple[float, ...]:
    """Returns the stakes after the requests of this step.

    Among requests of the same time each is as likely to fail, if the first set isn't worse, on either side. So of
    the failures it has its share of the requests, on average. The odds are those of a binomial distribution; the true
    one is hypergeometric, for which they are too low (Hoeffding 1963, theorem 4), so they are fair.
    """
    first, second = evidence.step.first, evidence.step.second
    failed, number = first.failed + second.failed, first.requests + second.requests
    if not failed or not number:
        return evidence.failures
    share = min(1.0, first.requests / number)
    growths = (
        first.failed * math.log(ratio) - failed * math.log(1 - share + share * ratio) for ratio in _TIMES_AS_OFTEN
    )
    return tuple(stake + min(growth, _MOST_GROWTH) for stake, growth in zip(evidence.failures, growths, strict=True))


def _compare_times(evidence: Evidence, now: float, slower: float, *, waits: bool) -> Evidence:
    """Returns the evidence after a comparison of the mean times, if there are enough requests for one.

    Only which mean is longer counts, because nothing is known of how the times are distributed, except that of two
    equal sets neither is slower more often than the other. `waits`: whether requests wait in the first set.
    """
    if math.isinf(evidence.window_began):
        return replace(evidence, window=Both(), window_began=now)
    first, second = evidence.window.first, evidence.window.second
    elapsed, usual = now - evidence.window_began, slower * (second.mean or 0.0)
    hangs = waits and not first.requests and second.requests >= _MANY and elapsed > 2 * usual
    enough = min(first.requests, second.requests) >= _MANY
    if elapsed < _STEP_SECONDS or not (enough or hangs):
        return evidence
    stakes = evidence.slowness
    if hangs or (first.mean is not None and second.mean is not None):
        is_slower = hangs or (first.mean or 0.0) > usual
        stakes = tuple(
            stake + math.log(2 * (share if is_slower else 1 - share))
            for stake, share in zip(stakes, _SLOWER_OF_ALL, strict=True)
        )
    return replace(evidence, slowness=stakes, window=Both(), window_began=now)


def _mean(logarithms: tuple[float, ...]) -> float:
    return sum(math.exp(min(700.0, stake)) for stake in logarithms) / len(logarithms)
