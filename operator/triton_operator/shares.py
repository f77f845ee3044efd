"""How memory is shared between namespaces."""

from __future__ import annotations

from collections import Counter


class Shares:
    """Room for `total` bytes that namespaces take. Not thread-safe.

    While there is room, a namespace takes as much as it needs. Once `total` is taken, it takes no more than its share:
    `total` divided by the number of namespaces. So those that take most are refused first, and no more than twice
    `total` is ever taken.
    """

    def __init__(self, total: int) -> None:
        self._total, self._taken, self._sum = total, Counter[str](), 0

    def take(self, namespace: str, size: int) -> bool:
        """Takes `size` bytes for `namespace`; False, and nothing is taken, where it has no room for them."""
        mine = self._taken[namespace] + size
        if self._sum + size > self._total and mine > self._total // len(self._taken.keys() | {namespace}):
            return False
        self._taken[namespace] = mine
        self._sum += size
        return True

    def give_back(self, namespace: str, size: int) -> None:
        """Gives back what was taken."""
        self._sum -= size
        self._taken[namespace] -= size
        if not self._taken[namespace]:
            del self._taken[namespace]
