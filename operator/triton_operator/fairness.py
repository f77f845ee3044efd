"""Fair queueing between flows, as in Kubernetes' API Priority and Fairness, and token buckets."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

F = TypeVar("F", bound=Hashable)
T = TypeVar("T")
_MOST_DEBT = 5.0
"""How much more than others a flow may have cost. It comes next when each of them has caught up with that."""


class FairQueue(Generic[F, T]):
    """Shares a number of `seats` between the flows that have waiting items. Not thread-safe.

    The flow whose items have cost least comes next, as in Linux' scheduler; of those that have cost the same, the flows
    take turns. The items of one flow are first in, first out. A flow gets another seat only while more seats are free
    than it occupies: of 8 seats the first flow gets 4, the second 2. So a new flow usually finds a free seat, and
    doesn't have to wait until another flow's item is done.
    """

    def __init__(self, seats: int) -> None:
        self._free = seats
        self._occupied = Counter[F]()
        self._waiting: dict[F, deque[T]] = {}
        self._costs: dict[F, float] = {}
        self._least = 0.0
        """The cost of the last flow that came next. Time without items is no credit, so none begins with less."""

    def __len__(self) -> int:
        """Returns the number of waiting items."""
        return sum(map(len, self._waiting.values()))

    def put(self, flow: F, item: T) -> None:
        """Adds an item, which waits for a seat."""
        if flow not in self._waiting:
            self._costs[flow] = max(self._costs.get(flow, 0.0), self._least)
        self._waiting.setdefault(flow, deque()).append(item)

    def take(self) -> T | None:
        """Gives the next item a seat until `leave`, and returns it; None if no waiting item may have a seat."""
        entitled = (flow for flow in self._waiting if self._occupied[flow] < self._free)
        flow = min(entitled, key=self._costs.__getitem__, default=None)
        if flow is None:
            return None
        self._least = max(self._least, self._costs[flow])
        items = self._waiting.pop(flow)
        item = items.popleft()
        if items:
            self._waiting[flow] = items  # behind all others
        self._free -= 1
        self._occupied[flow] += 1
        return item

    def leave(self, flow: F, cost: float = 0.0) -> None:
        """Frees the seat of an item of `flow`. `cost`: what the item has cost, such as its seconds of CPU time."""
        self._free += 1
        self._costs[flow] = min(self._costs[flow] + cost, self._least + _MOST_DEBT)
        self._occupied[flow] -= 1
        if not self._occupied[flow]:
            del self._occupied[flow]
            if flow not in self._waiting and self._costs[flow] <= self._least:
                del self._costs[flow]


class TokenBuckets(Generic[F]):
    """A bucket of `burst` tokens for each flow, which gets a new token every `seconds`. Not thread-safe.

    `now` is in seconds of a monotonic clock. A full bucket takes no memory.
    """

    def __init__(self, burst: int, seconds: float) -> None:
        self._seconds, self._burst_seconds = seconds, (burst - 1) * seconds
        self._full_at: dict[F, float] = {}

    def wait(self, flow: F, now: float) -> float:
        """Returns the seconds until `flow` has a token; 0 if it has one."""
        return max(0.0, self._full_at.get(flow, now) - now - self._burst_seconds)

    def take(self, flow: F, now: float) -> float:
        """Takes one token of `flow`. Returns 0, or the seconds until there is one."""
        wait = self.wait(flow, now)
        if not wait:
            self.spend(flow, now)
        return wait

    def spend(self, flow: F, now: float) -> None:
        """Takes one token of `flow`."""
        self._full_at[flow] = max(self._full_at.pop(flow, now), now) + self._seconds
        # The flows that were used last are at the end.
        while self._full_at[oldest := next(iter(self._full_at))] <= now:
            del self._full_at[oldest]
