"""Chooses the `limit` of a list request, so that a page fits into the operator's memory.

The API server's `limit` counts objects, and users decide how large an object is: 100 objects take 100 KB or 150 MB.
"""

from __future__ import annotations

from .shallow import MAX_BYTES

MAX_LIMIT = 100
_AIM = MAX_BYTES * 3 // 4
_GROWTH = 4


def smaller(limit: int) -> int:
    """Returns the limit for the next attempt after a page of `limit` objects was too large (shallow.Size).

    A page of one object is never too large.
    """
    return max(1, limit // 4)


def next_limit(limit: int, count: int, size: int) -> int:
    """Returns the limit for the next page after a page of `count` objects and `size` bytes with this `limit`."""
    return max(1, min(MAX_LIMIT, limit * _GROWTH, count * _AIM // max(size, 1)))
