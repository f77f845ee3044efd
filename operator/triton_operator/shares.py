"""How memory is shared between namespaces."""

from __future__ import annotations

from collections import Counter


class Shares:
    """Room for `total` bytes that namespaces take. Not thread-safe.

    While there is room, a namespace takes as much as it needs. Once `total` is taken, it takes no more than its share:
    `total` divided by the number of namespaces. So those that take most are refused first, and no more than twice
    `total` is taken in all.
    """

    def __init__(self, total: int) -> None:
        self._total, self._taken, self._sum = total, Counter[str](), 0

    def may_take(self, namespace: str, size: int) -> bool:
        """Whether there is room for `size` more bytes of `namespace`."""
        share = self._total // len(self._taken.keys() | {namespace})
        return self._sum + size <= self._total or self._taken[namespace] + size <= share

    def take(self, namespace: str, size: int) -> None:
        """Takes `size` bytes for `namespace`. Who takes more than it may take gets it, and all others have less."""
        self._taken[namespace] += size
        self._sum += size

    def give_back(self, namespace: str, size: int) -> None:
        """Gives back what was taken."""
        self.take(namespace, -size)
        if not self._taken[namespace]:
            del self._taken[namespace]
