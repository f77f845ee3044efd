"""How many objects to ask for at a time, so that a page of a listing is read as a whole.

The API server's `limit` counts objects, and a user decides how large an object is: a hundred take 100 KB or 150 MB.
"""

from __future__ import annotations

from .shallow import MOST_BYTES

MOST = 100
_AIM = MOST_BYTES * 3 // 4
_GROWTH = 4


def smaller(limit: int) -> int:
    """The limit for the next attempt if a page of `limit` objects doesn't fit (shallow.Size). A page of one object
    always fits."""
    return max(1, limit // 4)


def following(limit: int, count: int, size: int) -> int:
    """The limit for the page after one of `count` objects and `size` bytes, which was asked for with `limit`."""
    return max(1, min(MOST, limit * _GROWTH, count * _AIM // max(size, 1)))
