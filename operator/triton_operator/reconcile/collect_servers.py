"""Takes away servers of Deployments that are gone, where Kubernetes' own collector doesn't."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind, ending
from triton_operator.cluster.api import ApiError, KubernetesApi
from triton_operator.cluster.store import Store, controller

from .memory import Memory

Object = dict[str, Any]
_log = logging.getLogger(__name__)
_PATIENCE = timedelta(minutes=1)
"""How long Kubernetes' collector is left to do it alone: its watches wait for up to a minute when they have failed."""
_SETTLED = timedelta(minutes=10)
"""The age at which a Deployment isn't looked at any more, or each new leader would list for each of them."""


class ServerCollector:
    """Collects the ReplicaSets and pods that a Deployment's predecessors of its name have left. They have its labels,
    and answer under its Service. Safe to use from several threads, one a TritonModel.

    Kubernetes' collector misses the end of a Deployment that was deleted and made anew while its watch was off, as it
    does that of a TritonModel (see collect.py), and so with a ReplicaSet and its pods.
    """

    def __init__(self, api: KubernetesApi, store: Store, clock: Callable[[], datetime]) -> None:
        self._api, self._store, self._clock = api, store, clock

    def clear_the_way(self, key: str, deployment: Object, memory: Memory) -> float | None:
        """Looks once, a minute after the Deployment was made: what its predecessors have left is old by then. In how
        many seconds to call again, None where that is done. Raises ApiError for what a retry may cure."""
        metadata = deployment["metadata"]
        if memory.cleared == metadata["uid"]:
            return None
        age = self._clock() - datetime.fromisoformat(metadata["creationTimestamp"])
        # An age below zero is a clock that is wrong.
        if timedelta() <= age < _PATIENCE:
            return (_PATIENCE - age).total_seconds()
        if age < _SETTLED:
            self._collect(key, metadata["uid"])
        memory.cleared = metadata["uid"]
        return None

    def clear_up(self, key: str) -> None:
        """The same for a TritonModel that is gone. Raises ApiError."""
        self._collect(key)

    def _collect(self, key: str, uid: str = "") -> None:
        """`uid`: of the Deployment that is known to be there."""
        namespace, name = key.split("/")
        # The pods first: the ReplicaSet of one that comes later needn't be in the list.
        pods = [pod for pod in self._store.of_kind(key, kinds.POD.kind) if not ending(pod)]
        selector = f"{names.LABEL_INSTANCE}={name},{names.MANAGED_SELECTOR}"
        # What is old in it does no harm: the Deployment, and what pods belong to, is asked for anew.
        sets = list(self._api.list(kinds.REPLICA_SET, namespace, selector, cached=True))
        left = _of_another(sets, name, uid)
        if left:
            # No watch may have told yet of one that is newer, and has ReplicaSets in the list.
            left = _of_another(left, name, self._api.uid_of(kinds.DEPLOYMENT, namespace, name))
        for found in left:
            self._delete(key, kinds.REPLICA_SET, found)
        known = {found["metadata"]["uid"] for found in sets}
        for pod in pods:
            owner = controller(pod, kinds.REPLICA_SET)
            # One that isn't in the list may have lost its labels.
            if owner and owner["uid"] not in known and not self._is_there(namespace, owner):
                self._delete(key, kinds.POD, pod)

    def _is_there(self, namespace: str, owner: Object) -> bool:
        return self._api.uid_of(kinds.REPLICA_SET, namespace, owner["name"]) == str(owner["uid"])

    def _delete(self, key: str, kind: Kind, obj: Object) -> None:
        metadata = obj["metadata"]
        try:
            # A ReplicaSet in the foreground, or its pods might be missed in turn.
            foreground = kind == kinds.REPLICA_SET
            self._api.delete(kind, metadata["namespace"], metadata["name"], metadata["uid"], foreground=foreground)
        except ApiError as error:
            if error.transient:
                raise
            _log.warning("%s %s: %s", kind.kind, metadata["name"], error.message, extra={"key": key})
        else:
            _log.info("deleted %s %s: its owner is gone", kind.kind, metadata["name"], extra={"key": key})


def _of_another(sets: Iterable[Object], name: str, uid: str) -> list[Object]:
    """Those that were made for a Deployment of this name with another uid."""
    owners = ((found, controller(found, kinds.DEPLOYMENT)) for found in sets if not ending(found))
    return [found for found, owner in owners if owner and owner["name"] == name and owner["uid"] != uid]
