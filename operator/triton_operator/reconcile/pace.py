"""Limits how often one TritonModel makes the operator write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from triton_operator.fairness import TokenBuckets
from triton_operator.pods import Problem

SPEC_BURST, SPEC_SECONDS = 5, 20.0
"""Rate limit of the changes of one spec that replace the servers."""
SPEC_CHANGES_TOO_OFTEN = Problem(
    "SpecChangesTooOften",
    f"the servers run an earlier spec, because it changes too often: after {SPEC_BURST} changes that replace servers "
    f"the operator makes one every {SPEC_SECONDS:g} s",
)
URGENT_BURST, URGENT_SECONDS = 10, 5.0
"""Rate limit of the urgent status updates of one TritonModel."""


class Pace:
    """The rate limits of TritonModels. Thread-safe.

    They also apply to a TritonModel that is deleted and created again. `elapsed`: a monotonic clock, in seconds.
    """

    def __init__(self, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._elapsed, self._lock = elapsed, threading.Lock()
        self._specs = TokenBuckets[str](SPEC_BURST, SPEC_SECONDS)
        self._urgent = TokenBuckets[str](URGENT_BURST, URGENT_SECONDS)

    def spend_spec(self, key: str) -> float:
        """Takes a token for a spec that replaces the servers. Returns 0, or the seconds until there is one."""
        return self._spend(self._specs, key)

    def spend_urgent(self, key: str) -> bool:
        """Takes a token for an urgent status update; returns whether there was one."""
        return not self._spend(self._urgent, key)

    def _spend(self, buckets: TokenBuckets[str], key: str) -> float:
        with self._lock:
            return buckets.take(key, self._elapsed())
