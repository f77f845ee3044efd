"""Hypothesis settings: the same few examples every time or, with SOAK=1, many random ones."""

from __future__ import annotations

import os
import random
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
SOAK = os.environ.get("SOAK") == "1"
TIMES = 20 if SOAK else 1
"""How many times the examples of usual runs a soak has."""
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
    """Returns settings for `count` examples, and for more of them in a soak."""
    return settings(_settings, max_examples=count * TIMES, **more)


def batches(count: int) -> settings:
    """Returns settings for a test against a server with state: a failing example isn't shrunk."""
    return examples(count, phases=[Phase.explicit, Phase.generate], verbosity=Verbosity.quiet)


def seed() -> int:
    """Returns the seed of `drawn`: SEED, in a soak a random number, otherwise 1. Prints it."""
    number = int(os.environ.get("SEED", "0")) or (random.randrange(1, 10**6) if SOAK else 1)
    print(f"SEED={number}")
    return number


def drawn(strategy: SearchStrategy[T], count: int, seed: int) -> list[T]:
    """Generates `count` different examples for a test against a real system. The same seed gives the same examples.

    With `@given` a failed example would run again, in a system that has changed, and its second error hide the first.
    """
    values: list[T] = []

    @seeded(seed)
    @settings(_settings, max_examples=count, phases=[Phase.generate], derandomize=False)
    @given(strategy)
    def collect(example: T) -> None:
        values.append(example)

    collect()
    return values
