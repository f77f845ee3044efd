"""Lists into the store what there is, of the kinds that the cluster has."""

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
    """What this operator looks after, in `namespaces` or in all. Everything blocks, and raises ApiError.

    `served`: the optional kinds that are listed, by what `discover` told last.
    """

    def __init__(self, api: KubernetesApi, store: Store, namespaces: tuple[str, ...]) -> None:
        self._api, self._store = api, store
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self.served: frozenset[Kind] = frozenset()

    def discover(self) -> frozenset[Kind]:
        """The optional kinds that the cluster has now."""
        return frozenset(k for k in _OPTIONAL if self._api.serves(k))

    def serves(self, kind: Kind) -> bool:
        return not kind.optional or kind in self.served

    def kinds(self) -> tuple[Kind, ...]:
        """Those to watch: of this operator, and of the others' what the cluster has."""
        return (kinds.TRITON_MODEL, *filter(self.serves, KINDS), kinds.POD)

    def everything(self) -> bool:
        """Returns whether the cluster has gone back in time, as after a restore of etcd from a backup."""
        gone_back = False
        for namespace in self._namespaces:
            for kind in (*KINDS, kinds.POD):
                gone_back |= self._store.replace(kind.kind, self._children(kind, namespace), namespace)
        return self.models() or gone_back

    def models(self) -> bool:
        gone_back = False
        for namespace in self._namespaces:
            found = self._api.list(kinds.TRITON_MODEL, namespace)
            gone_back |= self._store.replace(kinds.TRITON_MODEL.kind, found, namespace)
        return gone_back

    def _children(self, kind: Kind, namespace: str | None) -> Iterator[dict[str, Any]]:
        if not self.serves(kind):
            return
        try:
            # These first: what changes its label meanwhile is then in both, or an event tells of it.
            if kind in CONDITIONAL:
                yield from self._unlabelled(kind, namespace)
            yield from self._api.list(kind, namespace, names.MANAGED_SELECTOR)
        except ApiError as error:
            # Its CRD has gone since it was looked for.
            if not (kind.optional and error.code == 404):
                raise

    def _unlabelled(self, kind: Kind, namespace: str | None) -> Iterator[dict[str, Any]]:
        """Children whose label somebody has taken. What is always wanted is found where it is in the way of its like;
        these may not be wanted any more."""
        for found in self._api.list(kind, namespace, names.UNMANAGED_SELECTOR, metadata=True):
            if controller(found) is None:
                continue
            try:
                yield self._api.get(kind, found["metadata"]["namespace"], found["metadata"]["name"])
            except ApiError as error:
                if error.code != 404:  # it has gone meanwhile
                    raise
