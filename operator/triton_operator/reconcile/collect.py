"""Takes away what TritonModels that are gone have left, where Kubernetes' own collector doesn't."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from triton_operator.api import kinds
from triton_operator.cluster.api import ApiError, KubernetesApi
from triton_operator.cluster.store import Store

Object = dict[str, Any]
_log = logging.getLogger(__name__)
_PATIENCE = timedelta(minutes=5)
"""How long Kubernetes' collector is left to do it alone, where nobody waits for a name."""


class Collector:
    """Collects garbage of TritonModels. Safe to use from several threads, one a TritonModel.

    Kubernetes' collector is at it as well, and mostly first. But of a TritonModel that was deleted and made anew while
    its watch was off (the API server was away) it never learns that the first is gone: a list that has the name is no
    end of what had it (kubernetes/kubernetes#133565). What that one left would stand in the way until the collector
    itself is started again.
    """

    def __init__(self, api: KubernetesApi, store: Store, clock: Callable[[], datetime]) -> None:
        self._api, self._store, self._clock = api, store, clock
        self._ends: dict[str, datetime] = {}

    def clear_the_way(self, key: str, uid: str) -> None:
        """Deletes what others than the TritonModel with this uid have left under its name. Raises ApiError."""
        self._ends.pop(key, None)
        self._collect(key, uid, self._left(key, uid))

    def clear_up(self, key: str) -> float | None:
        """Deletes what is left of a TritonModel that has been gone for minutes; in how many seconds to look again, None
        where nothing is left to do. Raises ApiError."""
        left = self._left(key)
        if not left:
            self._ends.pop(key, None)
            return None
        now = self._clock()
        since = self._ends.setdefault(key, now)
        # A clock that was set back would make it wait for longer.
        if timedelta() <= now - since < _PATIENCE:
            return (since + _PATIENCE - now).total_seconds()
        self._collect(key, "", left)
        return None

    def _left(self, key: str, uid: str = "") -> list[Object]:
        return [obj for obj in self._store.left(key, uid) if "deletionTimestamp" not in obj["metadata"]]

    def _collect(self, key: str, uid: str, left: Iterable[Object]) -> None:
        for number, obj in enumerate(left):
            if number == 0 and self._uid(key) != uid:
                # What looks like garbage may belong to a TritonModel of which no watch has told yet.
                raise ApiError(0, "Stale", f"{key} was deleted or made anew meanwhile")
            kind, metadata = kinds.of(obj), obj["metadata"]
            # Else what holds for a TritonModel would hold for its Deployment, and the former servers stay.
            foreground = kind == kinds.DEPLOYMENT
            there = self._api.delete(
                kind, metadata["namespace"], metadata["name"], metadata["uid"], foreground=foreground
            )
            if not there:
                self._store.remove(obj)
            _log.info(
                "deleted %s %s: left by a TritonModel that is gone", obj["kind"], metadata["name"], extra={"key": key}
            )

    def _uid(self, key: str) -> str:
        """Of the TritonModel of this name as the API server has it; "" where there is none."""
        try:
            return str(self._api.get(kinds.TRITON_MODEL, *key.split("/"))["metadata"]["uid"])
        except ApiError as error:
            if error.code == 404:
                return ""
            raise
