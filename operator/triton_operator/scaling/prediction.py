"""Predicts the load by its trend, as the rule for `autoscaling.predict` does (render/rules/recording.py)."""

from __future__ import annotations

Loads = tuple[tuple[float, float], ...]
"""The load over time: seconds, and servers at full use."""
AHEAD_SECONDS, TREND_SECONDS = 120.0, 300.0
"""How far ahead the load is predicted, and how much of the past makes the trend."""
_EVERY_SECONDS = 10.0
_SHORTEST_SECONDS = TREND_SECONDS / 2
"""A shorter past predicts nothing, because its trend is mostly noise. A new leader has none."""
_MOST = 1e15
"""A higher load is the lie of a server or a threshold near zero, and would overflow."""


def record(loads: Loads, now: float, load: float) -> Loads:
    """Returns `loads` with the load at `now`, about every ten seconds, and without what is too old."""
    entries = loads if loads and now - loads[-1][0] < _EVERY_SECONDS else (*loads, (now, min(load, _MOST)))
    return tuple(entry for entry in entries if entry[0] > now - TREND_SECONDS)


def predicted(loads: Loads, now: float) -> float:
    """Returns the load in two minutes by the trend of the last five, at most twice the present one; 0 if unknown.

    The trend is the line with the least squares, as in Prometheus' predict_linear.
    """
    if not loads or loads[-1][0] - loads[0][0] < _SHORTEST_SECONDS:
        return 0.0
    times, values = [at - now for at, _ in loads], [load for _, load in loads]
    mean_time, mean_value = sum(times) / len(times), sum(values) / len(values)
    spread = sum((at - mean_time) ** 2 for at in times)
    slope = sum((at - mean_time) * (load - mean_value) for at, load in zip(times, values, strict=True)) / spread
    return min(2 * values[-1], mean_value + slope * (AHEAD_SECONDS - mean_time))
