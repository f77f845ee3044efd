"""Lets the gate of a canary compare equal servers for simulated hours of recorded requests, and counts false alarms."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from pathlib import Path

from triton_operator.api.canary import Gate
from triton_operator.api.servers import Sample
from triton_operator.decisions.comparison import Evidence, observe

_TRACE = Path(__file__).parents[1] / "streaming" / "traces" / "code.txt"
_POLL_SECONDS = 2
_FAIL = 0.01
_FIRST_SECONDS, _TOKEN_SECONDS = 0.05, 0.02
"""How long a request takes: this, and this for each of its tokens."""
_NOISE = 0.2
"""The σ of the logarithm of what chance adds to that."""


@dataclass
class Rounds:
    """What became of the rounds of a simulation: all, those with a false alarm, and those without a verdict."""

    all: int = 0
    false: int = 0
    doubtful: int = 0


def trace() -> list[tuple[float, int]]:
    """Returns the time in seconds and the tokens of each request."""
    lines = (line.split() for line in _TRACE.read_text().splitlines())
    return [(float(at), int(tokens)) for at, tokens in lines]


def simulate(weight: float, hours: float, seed: int) -> Rounds:
    """Repeats the recorded requests; a share of `weight` goes to a canary that is as good as the other servers."""
    chance, gate, requests = random.Random(seed), Gate(), trace()
    lasts = requests[-1][0] + 1
    counts = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    running: list[tuple[float, int, float, bool]] = []
    histories: list[tuple[Sample, ...]] = [(), ()]
    evidence, rounds, number = Evidence(0), Rounds(), 0
    for now in range(0, int(3600 * hours), _POLL_SECONDS):
        while (at := requests[number % len(requests)][0] + number // len(requests) * lasts) <= now:
            seconds = _FIRST_SECONDS + _TOKEN_SECONDS * requests[number % len(requests)][1]
            seconds *= chance.lognormvariate(0, _NOISE)
            which = 0 if chance.random() < weight else 1
            heapq.heappush(running, (at + seconds, which, seconds, chance.random() < _FAIL))
            number += 1
        while running and running[0][0] <= now:
            _, which, seconds, failed = heapq.heappop(running)
            counts[which][0] += 1
            counts[which][1 if failed else 2] += 1 if failed else seconds
        histories = [
            (*history[-2:], Sample(now, requests_, 0, failed=failed_, seconds=seconds_))
            for history, (requests_, failed_, seconds_) in zip(histories, counts, strict=True)
        ]
        slower = 1 + gate.max_slowdown_percent / 100
        evidence = observe(evidence, {"canary": histories[0]}, {"other": histories[1]}, now, slower)
        if evidence.is_worse or now - evidence.began >= gate.step_seconds:
            rounds.all += 1
            rounds.false += evidence.is_worse
            rounds.doubtful += evidence.is_doubtful and not evidence.is_worse
            evidence = evidence.next_round(now)
    return rounds
