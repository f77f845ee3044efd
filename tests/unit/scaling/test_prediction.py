"""The prediction of the load by its trend."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_operator.scaling.prediction import AHEAD_SECONDS, TREND_SECONDS, Loads, predicted, record


def of(*values: float) -> Loads:
    """Returns a load every ten seconds."""
    return tuple((10.0 * n, value) for n, value in enumerate(values))


def test_continues_a_line() -> None:
    assert predicted(of(*(3 + 0.1 * n for n in range(31))), 300) == pytest.approx(3 + 0.1 * 42)
    assert predicted(of(*[4.0] * 31), 300) == pytest.approx(4)
    assert predicted(of(*(9 - 0.1 * n for n in range(31))), 300) == pytest.approx(9 - 0.1 * 42)


def test_is_at_most_twice_the_present_load() -> None:
    assert predicted(of(*range(30), 1), 300) == 2


def test_is_unknown_for_half_of_the_window() -> None:
    assert predicted((), 0) == 0
    assert predicted(of(1, 9), 10) == 0
    assert predicted(of(*range(15)), 140) == 0
    assert predicted(of(*range(16)), 150) > 15


def test_remembers_the_window_only() -> None:
    loads: Loads = ()
    for second in range(0, 1000, 2):
        loads = record(loads, second, second)
    assert len(loads) == 30
    assert loads[0][0] > 998 - TREND_SECONDS
    assert loads[-1] == (990, 990)


@given(st.lists(st.floats(0, 1e4), min_size=16, max_size=30))
def test_has_the_least_squares(values: list[float]) -> None:
    loads = of(*values)
    now = loads[-1][0] + 3
    slope, there = np.polyfit([at - now for at, _ in loads], values, 1)
    expected = min(2 * values[-1], there + slope * AHEAD_SECONDS)
    assert predicted(loads, now) == pytest.approx(expected, rel=1e-6, abs=1e-4)


@given(st.lists(st.floats(0), max_size=40))
def test_is_finite_whatever_the_load_was(values: list[float]) -> None:
    loads: Loads = ()
    for at, value in of(*values):
        loads = record(loads, at, value)
        assert math.isfinite(predicted(loads, at))
