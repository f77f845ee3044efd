"""Finds memory that grows steadily, and when it reaches the limit. Pure.

docs/decisions/0064-memory-that-grows.md
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

_STEP = 15.0
"""Seconds of the shortest buckets. The buckets of each level are twice as long as those of the level below."""
_LEVELS = 16
"""The longest windows are of about three months."""
_PARTS = 8
"""A window has this number of parts."""
_WINDOWS = (16, 24)
"""The lengths of the windows of a level, in buckets."""
_HORIZON = 0.5
"""The limit must be reached in this share of the time for which the memory has grown."""
_LEAST = 0.05
"""The least growth of a window, as a share of the limit."""
_GIVEN_BACK = 0.05
"""How much of its growth a window may give back between two parts."""
_LARGEST = 0.35
"""The largest share of its growth that a window may have between two parts. Loading a model is one step."""
_SLOWER = 0.9
"""The least growth of a window's second half, as a share of that of its first half."""
_CHANGE_LEFT, _CHANGE_SEEN, _CHANGE_SECONDS = 0.25, 0.05, 120.0
"""A forecast changes when it is wrong by more than these shares of the remaining time and of the window, and by more
than two minutes."""
_FREED = 0.1
"""A forecast ends when this share of the memory is free again."""
_LEAST_HOLD = 120.0


class _Bucket(NamedTuple):
    """The least and the most memory of one bucket, in bytes. `number`: its place on the level's clock."""

    number: int
    low: float
    high: float


class _Found(NamedTuple):
    """A window with steady growth. `left`: seconds until the limit. `seconds`: the length of the window."""

    left: float
    seconds: float


class Growth:
    """The memory of one server over time, and when it will reach the limit.

    Memory that is used once is often kept: by caches, by the arenas of allocators, for the largest request so far. So
    growth counts only if it is steady, has lasted longer than it still takes, goes where the memory has not been
    before, and doesn't slow down.
    """

    def __init__(self) -> None:
        self._levels = [deque[_Bucket](maxlen=max(_WINDOWS)) for _ in range(_LEVELS)]
        self._began: float | None = None
        self._full: float | None = None
        self._used = 0.0
        self._held = 0.0

    def add(self, at: float, used: float, limit: float) -> float | None:
        """Returns when the memory will reach the limit, as a time of the clock of `at`; None if it doesn't grow so.

        - `at`: seconds of a monotonic clock.
        - `used`: the bytes that can't be reclaimed. `limit`: the most that there can be.
        """
        if self._began is None:
            self._began = at
        now = at - self._began
        for level, buckets in enumerate(self._levels):
            number = int(now // (_STEP * 2**level))
            if buckets and buckets[-1].number == number:
                last = buckets[-1]
                buckets[-1] = _Bucket(number, min(last.low, used), max(last.high, used))
            else:
                buckets.append(_Bucket(number, used, used))
        found = self._soonest(limit)
        if found is not None:
            full = at + found.left
            same = max(_CHANGE_LEFT * found.left, _CHANGE_SEEN * found.seconds, _CHANGE_SECONDS)
            if self._full is None or abs(full - self._full) > same:
                self._full = full
            self._used = used
            self._held = at + max(_LEAST_HOLD, found.seconds / _PARTS)
        elif at > self._held or used < self._used * (1 - _FREED):
            self._full = None
        return self._full

    def _soonest(self, limit: float) -> _Found | None:
        found = [
            window
            for level, buckets in enumerate(self._levels)
            for length in _WINDOWS
            if (window := self._window(level, buckets, length, limit))
        ]
        return min(found, default=None)

    def _window(self, level: int, buckets: Sequence[_Bucket], length: int, limit: float) -> _Found | None:
        """Returns what the last `length` buckets of a level say; None if they don't grow steadily towards the limit."""
        seconds = _STEP * 2**level
        first, per_part = buckets[-1].number - length + 1, length // _PARTS
        floors, top = [math.inf] * _PARTS, 0.0
        for bucket in buckets:
            part = (bucket.number - first) // per_part
            if part >= 0:
                floors[part] = min(floors[part], bucket.low)
            if part == _PARTS - 1:
                top = max(top, bucket.high)
        if math.inf in floors:
            return None
        steps = [after - before for before, after in itertools.pairwise(floors)]
        grown = floors[-1] - floors[0]
        half = _PARTS // 2
        early, late = floors[half - 1] - floors[0], floors[-1] - floors[half]
        if (
            grown <= 0
            or grown < _LEAST * limit
            or min(steps) < -_GIVEN_BACK * grown
            or max(steps) > _LARGEST * grown
            or late < _SLOWER * early
            or floors[-1] <= self._highest_before(first * seconds)
        ):
            return None
        rate = late / ((half - 1) * per_part * seconds)
        left = (limit - top) / rate
        return _Found(max(0.0, left), length * seconds) if left <= _HORIZON * length * seconds else None

    def _highest_before(self, time: float) -> float:
        """Returns the most memory that there was before this time, as far as is known."""
        return max(
            (
                bucket.high
                for level, buckets in enumerate(self._levels)
                for bucket in buckets
                if (bucket.number + 1) * _STEP * 2**level <= time
            ),
            default=0.0,
        )
