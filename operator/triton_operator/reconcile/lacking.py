"""The fields that the cluster's CRDs turned out not to know."""

from __future__ import annotations

import threading
from collections.abc import Iterable


class Lacking:
    """Remembers for all TritonModels what the API server refused for one. Safe to use from several threads.

    No event reports a newer CRD with the field, so `forget` makes the next write try it again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fields = frozenset[tuple[str, str]]()

    @property
    def fields(self) -> frozenset[tuple[str, str]]:
        """Returns the unknown fields, as the kind and the path."""
        return self._fields

    def add(self, kind: str, paths: Iterable[str]) -> None:
        with self._lock:
            self._fields |= {(kind, path) for path in paths}

    def forget(self) -> None:
        with self._lock:
            self._fields = frozenset()
