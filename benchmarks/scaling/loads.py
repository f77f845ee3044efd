"""The loads of the benchmark: requests of each second. Pure, except for the files of the traces."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PER_SERVER = 40.0
"""max-qps-per-replica. A server handles at most 50 requests per second."""
UTILIZATION, LEAST, MOST = 0.75, 1, 6
BASE, HIGH = 25.0, 100.0
"""Requests per second before and after the step: one server, and four."""
_TRACES = Path(__file__).resolve().parents[2] / "tests" / "unit" / "scaling" / "traces"
_TRACE_PEAK = 4 * PER_SERVER * UTILIZATION
"""The rate to which the traces are scaled, in the minute that only 1 % of the minutes exceed: it needs four servers."""


@dataclass(frozen=True)
class Load:
    """Requests of each second. `step`: the second at which they grow at once, None without one."""

    rates: tuple[float, ...]
    step: int | None = None


def step(seconds: int) -> Load:
    """Returns a load that grows to four times at a quarter of the time."""
    at = seconds // 4
    return Load((BASE,) * at + (HIGH,) * (seconds - at), at)


def ramp(seconds: int) -> Load:
    """Returns a load that grows to four times from a quarter to three quarters of the time."""
    grown = (min(1.0, max(0.0, second / seconds * 2 - 0.5)) for second in range(seconds))
    return Load(tuple(BASE + (HIGH - BASE) * part for part in grown))


def trace(name: str, seconds: int) -> Load:
    """Returns the busiest part of a trace, scaled up.

    - `name`: conv or code, of the Azure LLM inference traces of 2023 (tests/unit/scaling/traces).
    """
    counts = [float(n) for n in (_TRACES / f"{name}.txt").read_text().split()]
    sums = list(itertools.accumulate(counts, initial=0.0))
    minutes = sorted((b - a) / 60 for a, b in zip(sums, sums[60:], strict=False))
    factor = _TRACE_PEAK / minutes[int(0.99 * (len(minutes) - 1))]
    seconds = min(seconds, len(counts))
    begin = max(range(len(counts) - seconds + 1), key=lambda n: sums[n + seconds] - sums[n])
    return Load(tuple(factor * n for n in counts[begin : begin + seconds]))


def load(name: str, seconds: int) -> Load:
    """Returns the load `name`: step, ramp, conv or code."""
    return {"step": step, "ramp": ramp}[name](seconds) if name in ("step", "ramp") else trace(name, seconds)


NAMES = ("step", "ramp", "conv", "code")


def requests(rates: Sequence[float]) -> list[int]:
    """Returns a whole number of requests for each second. Their sum differs from that of the rates by less than one."""
    sums = [int(total + 1e-9) for total in itertools.accumulate(rates, initial=0.0)]
    return [b - a for a, b in itertools.pairwise(sums)]
