"""Takes away what TritonModels that are gone have left, where Kubernetes' own collector doesn't."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from triton_operator.api import kinds
from triton_operator.api.kinds import ending
from triton_operator.cluster.api import ApiError, KubernetesApi
from triton_operator.cluster.store import Store
from triton_operator.plan import Identity, identity
from triton_operator.render import children
from triton_operator.status.observation import Problem

Object = dict[str, Any]
_log = logging.getLogger(__name__)
_PATIENCE_OF_A_SUCCESSOR = timedelta(seconds=10)
"""How long Kubernetes' collector is left to do it alone where somebody waits for a name. It is mostly done within one
or two; and it takes a Deployment away at once, while its servers still drain."""


@dataclass(frozen=True)
class Way:
    """What is in a TritonModel's way: objects of former ones of its name, and what to say of each. `wait`: for so many
    seconds more that is as usual, and nobody needs to know."""

    blocked: dict[Identity, Problem] = field(default_factory=dict)
    wait: float = 0


class Collector:
    """Collects garbage of TritonModels. Safe to use from several threads, one a TritonModel.

    Kubernetes' collector is at it as well, and mostly first. But of a TritonModel that was deleted and made anew while
    its watch was off (the API server was away) it never learns that the first is gone: a list that has the name is no
    end of what had it (kubernetes/kubernetes#133565). What that one left would stand in the way until the collector
    itself is started again. Where nobody waits for a name, Kubernetes' collector is left to do it alone for `patience`.
    """

    def __init__(self, api: KubernetesApi, store: Store, clock: Callable[[], datetime], patience: timedelta) -> None:
        self._api, self._store, self._clock, self._patience = api, store, clock, patience
        self._ends: dict[str, datetime] = {}

    def clear_the_way(self, key: str, uid: str) -> Way:
        """Deletes what others than the TritonModel with this uid have left under its name, where Kubernetes' collector
        has had its time. Raises ApiError for what a retry may cure."""
        left = self._store.left(key, uid)
        if not left:
            self._ends.pop(key, None)
            return Way()
        wait = self._wait(key, _PATIENCE_OF_A_SUCCESSOR)
        if wait:
            return Way({identity(obj): _in_the_way(obj, "it is about to be deleted") for obj in left}, wait)
        return Way(self._collect(key, uid, left))

    def clear_up(self, key: str) -> float:
        """Deletes what is left of a TritonModel that has been gone for long; in how many seconds to call again, 0
        where that is done. Raises ApiError."""
        wait = self._wait(key, self._patience)
        if not wait:
            self._collect(key, "", [obj for obj in self._store.left(key) if not ending(obj)])
            self._ends.pop(key, None)
        return wait

    def _wait(self, key: str, patience: timedelta) -> float:
        """For how many seconds more what is left is the business of Kubernetes' collector alone."""
        now = self._clock()
        since = self._ends.setdefault(key, now)
        # A clock that was set back would make it wait for longer.
        return (since + patience - now).total_seconds() if timedelta() <= now - since < patience else 0

    def _collect(self, key: str, uid: str, left: list[Object]) -> dict[Identity, Problem]:
        """Deletes what isn't on its way out, and says of what is still there why it is."""
        blocked: dict[Identity, Problem] = {}
        for obj in (obj for obj in left if ending(obj)):
            # No watch tells of the end of what has lost its label.
            if self._api.uid_of(children.of(obj).kind, *_place(obj)) == obj["metadata"]["uid"]:
                blocked[identity(obj)] = _in_the_way(obj, _held(obj))
            else:
                self._store.remove(obj)
        for number, obj in enumerate(obj for obj in left if not ending(obj)):
            if number == 0 and self._api.uid_of(kinds.TRITON_MODEL, *key.split("/")) != uid:
                # What looks like garbage may belong to a TritonModel of which no watch has told yet.
                raise ApiError(0, "Stale", f"{key} was deleted or made anew meanwhile")
            kind, metadata = children.of(obj).kind, obj["metadata"]
            # Else what holds for a TritonModel would hold for its Deployment, and the former servers stay.
            foreground = kind == kinds.DEPLOYMENT
            name = f"{obj['kind']} {metadata['name']}"
            try:
                there = self._api.delete(kind, *_place(obj), metadata["uid"], foreground=foreground)
            except ApiError as error:
                if error.transient:
                    raise
                _log.warning("%s, left by a TritonModel that is gone: %s", name, error.message, extra={"key": key})
                blocked[identity(obj)] = _in_the_way(obj, f"the API server refuses to delete it: {error.message}")
                continue
            _log.info("deleted %s: left by a TritonModel that is gone", name, extra={"key": key})
            if not there:
                self._store.remove(obj)
            elif foreground or metadata.get("finalizers"):
                blocked[identity(obj)] = _in_the_way(obj, _held(obj))
        return blocked


def _place(obj: Object) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _held(obj: Object) -> str:
    """Why an object that was deleted is still there."""
    holders = [name for name in obj["metadata"].get("finalizers", ()) if name != "foregroundDeletion"]
    if holders:
        return f"it is being deleted, and held by the finalizers of others: {', '.join(holders)}"
    return "it is being deleted, and waits until its pods have ended"


def _in_the_way(obj: Object, why: str) -> Problem:
    name = f"{obj['kind']} {'/'.join(_place(obj))}"
    return Problem("FormerNotGone", f"{name} of a former TritonModel of this name is still there: {why}")
