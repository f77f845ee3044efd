"""Draws the picture of `kubectl triton explain-alert` in docs/on-call.md, from fixed sample data."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from kubectl_triton.charts import svg
from kubectl_triton.explain import chart

_NOW = datetime(2026, 11, 23, 10, 54, tzinfo=UTC).timestamp()
_MINUTES = 60
_RISE = (24.0, 41.5, 62.0, 80.5, 93.0, 98.3, 101.2, 99.6, 97.9, 98.8, 100.4, 98.1, 97.0, 96.8, 96.2)
"""The demand of the last minutes, in requests per second."""


def text() -> str:
    """Returns the picture as SVG."""
    usual = [21 + 2.5 * math.sin(k) + 1.5 * math.sin(2.7 * k) for k in range(_MINUTES + 1 - len(_RISE))]
    demand = [(_NOW - 60 * (_MINUTES - k), value) for k, value in enumerate([*usual, *_RISE])]
    limit = [(at, 80.0) for at, _ in demand]
    hour = chart.Hour(
        "TritonModelQpsOverflow (critical): vision/detector", "demand", "requests/s",
        _NOW, demand, limit, "max-qps", _NOW - 650,
    )  # fmt: skip
    return svg([chart.chart(hour)])
