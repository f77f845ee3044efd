"""How work is shared: fair queueing between flows, as in Kubernetes' API Priority and Fairness, and token buckets."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

F = TypeVar("F", bound=Hashable)
T = TypeVar("T")


class FairQueue(Generic[F, T]):
    """Shares `seats` between the flows whose items wait. Not thread-safe.

    The flows take turns, and the items of one flow are first in, first out. A flow occupies at most as many seats as
    it leaves free: of 8 the first takes 4, the second 2. So a flow without a seat waits for no item of another flow
    to be done until one seat is left.
    """

    def __init__(self, seats: int) -> None:
        self._free = seats
        self._occupied = Counter[F]()
        self._waiting: dict[F, deque[T]] = {}

    def __len__(self) -> int:
        """How many items wait."""
        return sum(map(len, self._waiting.values()))

    def put(self, flow: F, item: T) -> None:
        """Lets `item` wait for a seat."""
        self._waiting.setdefault(flow, deque()).append(item)

    def take(self) -> T | None:
        """Gives the next item a seat, until `leave`; None where nothing waits that may have one."""
        # Each flow that is passed over has a seat, so these are few, however many wait.
        flow = next((flow for flow in self._waiting if self._occupied[flow] < self._free), None)
        if flow is None:
            return None
        items = self._waiting.pop(flow)
        item = items.popleft()
        if items:
            self._waiting[flow] = items  # behind all others
        self._free -= 1
        self._occupied[flow] += 1
        return item

    def leave(self, flow: F) -> None:
        """An item of `flow` gives its seat back."""
        self._free += 1
        self._occupied[flow] -= 1
        if not self._occupied[flow]:
            del self._occupied[flow]


class TokenBuckets(Generic[F]):
    """A bucket of `burst` tokens for each flow, which regains one every `seconds`. Not thread-safe.

    `now` is in seconds of any clock that doesn't go back. A full bucket takes no memory.
    """

    def __init__(self, burst: int, seconds: float) -> None:
        self._seconds, self._most = seconds, (burst - 1) * seconds
        self._full_at: dict[F, float] = {}

    def wait(self, flow: F, now: float) -> float:
        """Seconds until `flow` has a token; 0 where it has one."""
        return max(0.0, self._full_at.get(flow, now) - now - self._most)

    def spend(self, flow: F, now: float) -> None:
        """Takes a token of `flow`."""
        self._full_at[flow] = max(self._full_at.pop(flow, now), now) + self._seconds
        # Those that were used last are at the end.
        while self._full_at[oldest := next(iter(self._full_at))] <= now:
            del self._full_at[oldest]
