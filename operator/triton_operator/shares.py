"""Shares memory between namespaces."""

from __future__ import annotations

from collections import Counter


class Shares:
    """A budget of `total` bytes for all namespaces. Not thread-safe.

    Within the budget, a namespace may take any amount. When the budget is used up, a namespace may take only its share:
    `total` divided by the number of namespaces. So the largest namespaces are refused first, and all together take at
    most twice `total`.
    """

    def __init__(self, total: int) -> None:
        self._total, self._taken, self._sum = total, Counter[str](), 0

    @property
    def taken(self) -> int:
        """Bytes that all namespaces have taken."""
        return self._sum

    def may_take(self, namespace: str, size: int) -> bool:
        """Returns whether `namespace` may take `size` more bytes."""
        share = self._total // (len(self._taken) + (namespace not in self._taken))
        return self._sum + size <= self._total or self._taken[namespace] + size <= share

    def take(self, namespace: str, size: int) -> None:
        """Takes `size` bytes for `namespace`, even if `may_take` is False; the other namespaces then have less."""
        self._taken[namespace] += size
        self._sum += size

    def give_back(self, namespace: str, size: int) -> None:
        """Returns `size` bytes of `namespace` to the budget."""
        self.take(namespace, -size)
        if not self._taken[namespace]:
            del self._taken[namespace]
