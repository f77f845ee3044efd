"""Pure computations on the times that a client has measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from support.live import percentile

QUANTILES = (0.5, 0.99)


def error(ours: Mapping[float, float], theirs: Mapping[float, float]) -> float:
    """Returns the largest relative deviation of `ours` from `theirs`, of all quantiles."""
    return max(abs(ours[q] / theirs[q] - 1) for q in QUANTILES)


def quantiles(seconds: Sequence[float]) -> dict[float, float]:
    """Returns the quantiles of the values themselves."""
    return {q: percentile(seconds, q) for q in QUANTILES}


def through_buckets(seconds: Sequence[float], bounds: Sequence[float]) -> dict[float, float]:
    """Returns what histogram_quantile computes if a histogram with these upper bounds has the values."""
    counts = [sum(value <= bound for value in seconds) for bound in bounds]
    out = {}
    for q in QUANTILES:
        rank = q * len(seconds)
        lower, below = 0.0, 0
        for bound, count in zip(bounds, counts, strict=True):
            if count >= rank:
                # The values above the last finite bound count as this bound.
                part = (rank - below) / (count - below)
                out[q] = lower if math.isinf(bound) else lower + (bound - lower) * part
                break
            lower, below = bound, count
    return out
