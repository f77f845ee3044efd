"""Hypothesis settings: the same few examples every time or, with SOAK=1, many random ones."""

from __future__ import annotations

import os
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
SOAK = os.environ.get("SOAK") == "1"
_TIMES = 20
_settings = settings(
    deadline=None,  # a busy machine may be slow
    database=None,
    derandomize=not SOAK,
    print_blob=SOAK,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
    ],
)


def examples(count: int, **more: Any) -> settings:
    """Returns settings for `count` examples, and twenty times as many in a soak."""
    return settings(_settings, max_examples=count * _TIMES if SOAK else count, **more)


def batches(count: int) -> settings:
    """Returns settings for a test against a server with state: a failing example isn't shrunk."""
    return examples(count, phases=[Phase.explicit, Phase.generate], verbosity=Verbosity.quiet)


def drawn(strategy: SearchStrategy[T], count: int, seed: int) -> list[T]:
    """Generates `count` different examples for a test against a real system. The same seed gives the same examples."""
    found: list[T] = []

    @seeded(seed)
    @settings(_settings, max_examples=count, phases=[Phase.generate], derandomize=False)
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found
