"""Deletes the pods of deleted Deployments that Kubernetes' garbage collector has missed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind, is_deleting
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.objects import controller
from triton_operator.cluster.store import Store

Object = dict[str, Any]
_log = logging.getLogger(__name__)
_GRACE_PERIOD = timedelta(minutes=1)
"""Grace period for Kubernetes' garbage collector: after a failure it restarts its watches within a minute."""
_SETTLED = timedelta(minutes=10)
"""Older Deployments are not checked. Otherwise each new leader would list the ReplicaSets of every TritonModel."""


class LeftoverPodCollector:
    """Deletes the ReplicaSets and pods of earlier Deployments of a TritonModel.

    Their pods have the same labels, so the Service still sends requests to them. Safe to use from several threads, with
    one thread at a time for each key.

    Kubernetes' garbage collector misses a Deployment that was deleted and created again while the collector's watch was
    interrupted (see leftovers.py). The same is true of a ReplicaSet and its pods.
    """

    def __init__(self, api: KubernetesApi, store: Store, clock: Callable[[], datetime]) -> None:
        self._api, self._store, self._clock = api, store, clock

    def delete_leftovers(self, key: str, deployments: Iterable[Object]) -> float | None:
        """Deletes the leftovers, when the grace period after the creation of the last Deployment is over.

        `deployments`: those that the TritonModel owns. Returns the seconds until it should be called again, None when
        it is done. Raises ApiError for failures that a retry may fix.
        """
        now, metadata = self._clock(), [deployment["metadata"] for deployment in deployments]
        ages = [now - datetime.fromisoformat(one["creationTimestamp"]) for one in metadata]
        # A wrong clock can make an age negative.
        if new := [age for age in ages if timedelta() <= age < _GRACE_PERIOD]:
            return (_GRACE_PERIOD - min(new)).total_seconds()
        if any(age < _SETTLED for age in ages):
            self._collect(key, {one["uid"] for one in metadata})
        return None

    def clean_up(self, key: str) -> None:
        """Deletes the leftover pods of a deleted TritonModel. Raises ApiError."""
        self._collect(key)

    def _collect(self, key: str, uids: Collection[str] = ()) -> None:
        """Deletes the ReplicaSets and pods whose Deployment is gone. `uids`: the Deployments that exist."""
        namespace, name = key.split("/")
        # Read the pods before the list: the ReplicaSet of a later pod may be missing in it.
        pods = [pod for pod in self._store.of_kind(key, kinds.POD.kind) if not is_deleting(pod)]
        # A stale list does no harm: the owners are read again before anything is deleted.
        selector = names.as_query(names.selector(name))
        sets = self._api.list(kinds.REPLICA_SET, namespace, selector, cached=True, metadata=True)
        stale = _of_others(sets, name, uids)
        # The list may contain ReplicaSets of a newer Deployment that no watch has reported yet.
        there = {at: self._api.uid_of(kinds.DEPLOYMENT, namespace, at) for at in {owner["name"] for _, owner in stale}}
        for replica_set, owner in stale:
            if there[owner["name"]] != owner["uid"]:
                self._delete(key, kinds.REPLICA_SET, replica_set)
        listed = {replica_set["metadata"]["uid"] for replica_set in sets}
        for pod in pods:
            above = controller(pod, kinds.REPLICA_SET)
            # A ReplicaSet that isn't in the list may have lost its labels.
            if above and above["uid"] not in listed and not self._exists(namespace, above):
                self._delete(key, kinds.POD, pod)

    def _exists(self, namespace: str, owner: Object) -> bool:
        return self._api.uid_of(kinds.REPLICA_SET, namespace, owner["name"]) == str(owner["uid"])

    def _delete(self, key: str, kind: Kind, obj: Object) -> None:
        metadata = obj["metadata"]
        try:
            # In the foreground, because the garbage collector could miss the ReplicaSet's deletion in the same way.
            foreground = kind == kinds.REPLICA_SET
            self._api.delete(kind, metadata["namespace"], metadata["name"], metadata["uid"], foreground=foreground)
        except ApiError as error:
            if error.transient:
                raise
            _log.warning("%s %s: %s", kind.kind, metadata["name"], error.message, extra={"key": key})
        else:
            _log.info("deleted %s %s: its owner is gone", kind.kind, metadata["name"], extra={"key": key})


def _of_others(sets: Iterable[Object], name: str, uids: Collection[str]) -> list[tuple[Object, Object]]:
    """Returns the ReplicaSets of other Deployments of the TritonModel `name` than these, each with its owner."""
    owners = (
        (replica_set, controller(replica_set, kinds.DEPLOYMENT)) for replica_set in sets if not is_deleting(replica_set)
    )
    return [
        (replica_set, owner)
        for replica_set, owner in owners
        if owner and owner["uid"] not in uids and (owner["name"] == name or owner["name"].startswith(f"{name}-"))
    ]
