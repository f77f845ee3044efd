"""How thoroughly properties are tried: the same few examples every time, or, with SOAK=1, many random ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings

SOAK = os.environ.get("SOAK") == "1"
_TIMES = 20
_settings = settings(
    deadline=None,  # a busy machine is slow, and nothing is wrong with it
    database=None,
    derandomize=not SOAK,
    print_blob=SOAK,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def examples(count: int, soak: int | None = None) -> Callable[[Any], Any]:
    """Settings for a test: so many examples, and in a soak twenty times as many, unless `soak` says how many."""
    return settings(_settings, max_examples=(soak or count * _TIMES) if SOAK else count)
