"""Lists all objects of the kinds that the cluster has, and puts them into the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind
from triton_operator.cluster.api import ApiError, KubernetesApi
from triton_operator.cluster.store import Store, controller
from triton_operator.render.children import CONDITIONAL, KINDS

_OPTIONAL = tuple(kind for kind in KINDS if kind.optional)


class Listing:
    """Lists the objects in `namespaces`, or in all. Every method blocks, and raises ApiError.

    `served`: the optional kinds to list, from the last `discover`.
    """

    def __init__(self, api: KubernetesApi, store: Store, namespaces: tuple[str, ...]) -> None:
        self._api, self._store = api, store
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self.served: frozenset[Kind] = frozenset()

    def discover(self) -> frozenset[Kind]:
        """Returns the optional kinds that the cluster has now."""
        return frozenset(k for k in _OPTIONAL if self._api.serves(k))

    def serves(self, kind: Kind) -> bool:
        return not kind.optional or kind in self.served

    def kinds(self) -> tuple[Kind, ...]:
        """Returns the kinds to watch: all that the cluster has."""
        return (kinds.TRITON_MODEL, *filter(self.serves, KINDS), kinds.POD)

    def list_all(self) -> bool:
        """Lists all kinds; returns whether resourceVersions are lower than before, as after a restore of etcd."""
        rolled_back = False
        for namespace in self._namespaces:
            for kind in (*KINDS, kinds.POD):
                rolled_back |= self._store.replace(kind.kind, self._children(kind, namespace), namespace)
        return self.list_models() or rolled_back

    def list_models(self) -> bool:
        """Lists the TritonModels; returns whether resourceVersions are lower than before."""
        rolled_back = False
        for namespace in self._namespaces:
            found = self._api.list(kinds.TRITON_MODEL, namespace)
            rolled_back |= self._store.replace(kinds.TRITON_MODEL.kind, found, namespace)
        return rolled_back

    def _children(self, kind: Kind, namespace: str | None) -> Iterator[dict[str, Any]]:
        if not self.serves(kind):
            return
        try:
            # List objects without the label first. If an object loses its label meanwhile, an event reports it.
            if kind in CONDITIONAL:
                yield from self._unlabelled(kind, namespace)
            yield from self._api.list(kind, namespace, names.MANAGED_SELECTOR)
        except ApiError as error:
            # The CRD was deleted after the last discovery.
            if not (kind.optional and error.code == 404):
                raise

    def _unlabelled(self, kind: Kind, namespace: str | None) -> Iterator[dict[str, Any]]:
        """Yields children that have lost their label.

        Only for kinds that a TritonModel may no longer need. All other kinds are found when they are applied.
        """
        for found in self._api.list(kind, namespace, names.UNMANAGED_SELECTOR, metadata=True):
            if controller(found) is None:
                continue
            try:
                yield self._api.get(kind, found["metadata"]["namespace"], found["metadata"]["name"])
            except ApiError as error:
                if error.code != 404:  # deleted in the meantime
                    raise
