"""How the CPU time of a function grows with its input.

A limit in seconds is right on one machine only. Twice the input takes twice the time of any machine, and four times
with an algorithm of quadratic time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_MOST = 3.0
"""Between the factor of linear time, 2, and that of quadratic time, 4."""
_TRIES = 4
_WARM_UP = 16


def cpu_seconds(run: Callable[[T], object], value: T) -> float:
    begin = time.process_time()
    run(value)
    return time.process_time() - begin


def assert_linear(prepare: Callable[[int], T], run: Callable[[T], object], size: int) -> None:
    """Asserts that `run` takes less than three times as long for an input of `size` as for one of half of it.

    `prepare`: returns the input of a size; its time doesn't count. Another process on the machine can make a run
    longer, but never shorter, so the shortest of a few runs count.
    """
    run(prepare(max(1, size // _WARM_UP)))
    half, whole = prepare(size // 2), prepare(size)
    short = long = float("inf")
    for _ in range(_TRIES):
        short, long = min(short, cpu_seconds(run, half)), min(long, cpu_seconds(run, whole))
        if long < _MOST * short:
            return
    raise AssertionError(f"{short:.3f} s of CPU time for {size // 2}, and {long:.3f} s for {size}")
