"""Charts of the latency over the rate, one for each kind of latency with a target. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kubectl_triton.charts import BLUE, COLUMN, GREEN, GREY, LINE, RED, Chart, Series

from .search import LATENCY, NAMES, Point

_TOP = 2.0
"""The charts end at this multiple of the target."""


def milliseconds(seconds: float) -> str:
    """Returns a latency as text."""
    if not math.isfinite(seconds):
        return "no answer"
    return f"{seconds * 1000:.3g} ms" if seconds < 0.0995 else f"{seconds * 1000:.0f} ms"


def charts(title: str, points: Sequence[Point], targets: Mapping[str, float], rate: float | None) -> list[Chart]:
    """Returns a chart for each target, in seconds by the kind of latency. `rate`: the result in requests per second."""
    return [_chart(title, points, kind, target, rate) for kind, target in targets.items()] if points else []


def _chart(title: str, points: Sequence[Point], kind: str, target: float, rate: float | None) -> Chart:
    end, top = max(p.rate for p in points), _TOP * target
    p50, p99 = ([(p.rate, getattr(p.latency(kind), name) or math.inf) for p in points] for name in ("p50", "p99"))
    series = [
        Series(f"target {milliseconds(target)}", LINE, RED, [(0, target), (end, target)]),
        *([Series(f"result {rate:.4g}", COLUMN, GREEN, [(rate, 0), (rate, top)])] if rate is not None else []),
        Series("P50", ".", GREY, p50),
        Series("p99", "o", BLUE, p99),
    ]
    if kind != LATENCY:
        title = f"{title}, {NAMES[kind]}"
    return Chart(title, "requests per second", NAMES[kind], 0, end, top, series, "{:.3g}".format, milliseconds)
