"""Deletes the children of deleted TritonModels that Kubernetes' garbage collector has missed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from triton_operator.api import kinds
from triton_operator.api.kinds import is_deleting
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.store import Store
from triton_operator.decisions.outcome import Outcome
from triton_operator.plan import Identity, identity
from triton_operator.pods import Problem
from triton_operator.render import children

Object = dict[str, Any]
_log = logging.getLogger(__name__)
_GRACE_PERIOD = timedelta(seconds=10)
"""Grace period for Kubernetes' garbage collector before we delete leftovers whose names a new TritonModel needs. The
garbage collector usually needs one or two seconds."""


WAITING_FOR_DELETION = Problem(
    "WaitingForDeletion",
    "a TritonModel with this name was deleted, and Kubernetes is still deleting its objects. What is left after "
    f"{_GRACE_PERIOD.seconds} s is deleted by the operator",
)


class LeftoverCollector:
    """Deletes leftovers of TritonModels. Safe to use from several threads, with one thread at a time for each key.

    Kubernetes' garbage collector usually deletes them first. But it misses a TritonModel that was deleted and created
    again while the collector's watch was interrupted: the next list contains the same name, so the collector sees no
    deletion (kubernetes/kubernetes#133565). The leftovers would then block the new TritonModel until the collector
    restarts.

    `grace_period`: how long to leave leftovers to the garbage collector if no new TritonModel needs the names.
    """

    def __init__(
        self, api: KubernetesApi, store: Store, clock: Callable[[], datetime], grace_period: timedelta
    ) -> None:
        self._api, self._store, self._clock, self._grace_period = api, store, clock, grace_period
        self._ends: dict[str, datetime] = {}

    def delete_leftovers(self, key: str, uid: str, outcome: Outcome) -> None:
        """Deletes the leftovers that block the TritonModel with this uid, after the grace period.

        Records in `outcome` what is still blocked: all leftovers if a deletion fails for a time. Raises ApiError if the
        API server doesn't answer.
        """
        left = self._store.leftovers(key, uid)
        if not left:
            self._ends.pop(key, None)
            return
        if wait := self._wait(key, _GRACE_PERIOD):
            outcome.blocked |= {identity(obj): _leftover_problem(obj, "it will be deleted") for obj in left}
            outcome.grace = wait
            return
        try:
            outcome.blocked |= self._collect(key, uid, left)
        except ApiError as error:
            if error.unanswered:
                raise
            outcome.outside_cause = outcome.outside_cause or error.transient
            outcome.blocked |= {identity(obj): _leftover_problem(obj, error.message) for obj in left}

    def clean_up(self, key: str) -> float:
        """Deletes the leftovers of a deleted TritonModel after the grace period.

        Returns the seconds until it should be called again, 0 when it is done. Raises ApiError.
        """
        wait = self._wait(key, self._grace_period)
        if not wait:
            self._collect(key, "", [obj for obj in self._store.leftovers(key) if not is_deleting(obj)])
            self._ends.pop(key, None)
        return wait

    def _wait(self, key: str, grace_period: timedelta) -> float:
        """Returns the remaining seconds of the grace period."""
        now = self._clock()
        since = self._ends.setdefault(key, now)
        # If the clock was set back, the grace period is over.
        return (since + grace_period - now).total_seconds() if timedelta() <= now - since < grace_period else 0

    def _collect(self, key: str, uid: str, left: list[Object]) -> dict[Identity, Problem]:
        """Deletes the leftovers that aren't being deleted yet; returns a problem for each that still exists."""
        blocked: dict[Identity, Problem] = {}
        for obj in (obj for obj in left if is_deleting(obj)):
            # No watch reports the deletion of an object that has lost its label.
            if self._api.uid_of(children.of(obj).kind, *_place(obj)) == obj["metadata"]["uid"]:
                blocked[identity(obj)] = _leftover_problem(obj, _why_it_still_exists(obj))
            else:
                self._store.remove(obj)
        for number, obj in enumerate(obj for obj in left if not is_deleting(obj)):
            if number == 0 and self._api.uid_of(kinds.TRITON_MODEL, *key.split("/")) != uid:
                # The owner may be a new TritonModel that no watch has reported yet.
                raise ApiError(0, "Stale", f"{key} was deleted or created again in the meantime")
            kind, metadata = children.of(obj).kind, obj["metadata"]
            # In the foreground, because the garbage collector could miss the Deployment's deletion in the same way.
            foreground = kind == kinds.DEPLOYMENT
            name = f"{obj['kind']} {metadata['name']}"
            try:
                there = self._api.delete(kind, *_place(obj), metadata["uid"], foreground=foreground)
            except ApiError as error:
                if error.transient:
                    raise
                _log.warning(
                    "could not delete %s, a leftover of a deleted TritonModel: %s",
                    name,
                    error.message,
                    extra={"key": key},
                )
                blocked[identity(obj)] = _leftover_problem(obj, f"the API server refuses to delete it: {error.message}")
                continue
            _log.info("deleted the leftover %s of a deleted TritonModel", name, extra={"key": key})
            if not there:
                self._store.remove(obj)
            elif foreground or metadata.get("finalizers"):
                blocked[identity(obj)] = _leftover_problem(obj, _why_it_still_exists(obj))
        return blocked


def _place(obj: Object) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _why_it_still_exists(obj: Object) -> str:
    """Returns why an object that is being deleted still exists."""
    holders = [name for name in obj["metadata"].get("finalizers", ()) if name != "foregroundDeletion"]
    if holders:
        return f"it is being deleted, but other controllers' finalizers hold it: {', '.join(holders)}"
    return "it is being deleted, and its pods have not ended yet"


def _leftover_problem(obj: Object, why: str) -> Problem:
    name = f"{obj['kind']} {'/'.join(_place(obj))}"
    return Problem("LeftoverNotDeleted", f"{name} of a deleted TritonModel with this name still exists: {why}")
