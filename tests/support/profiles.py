"""How thoroughly properties are tried: the same few examples every time, or, with SOAK=1, many random ones."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, settings

SOAK = os.environ.get("SOAK") == "1"
_TIMES = 20
_settings = settings(
    deadline=None,  # a busy machine is slow, and nothing is wrong with it
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
    """Settings for a test: so many examples, and in a soak twenty times as many."""
    return settings(_settings, max_examples=count * _TIMES if SOAK else count, **more)


def batches(count: int) -> settings:
    """Settings for a test against a world that remembers: what fails there isn't tried again in smaller pieces."""
    return examples(count, phases=[Phase.explicit, Phase.generate], verbosity=Verbosity.quiet)
