"""Lists all objects of the kinds that the cluster has, and puts them into the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind
from triton_operator.api.status import MONITORING_AVAILABLE
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.nodes import kubernetes_version
from triton_operator.cluster.objects import controller
from triton_operator.cluster.store import Store
from triton_operator.cluster.stored_fields import outline
from triton_operator.render.children import CHILDREN, CONDITIONAL, KINDS
from triton_operator.render.facts import Capabilities

_log = logging.getLogger(__name__)
_OPTIONAL = (*(kind for kind in KINDS if kind.optional), kinds.SECURITY_CONTEXT_CONSTRAINTS)
_REFUSED, _EXPIRED = 403, 410
_ATTEMPTS = 3
"""How often a list begins again at most."""
Place = tuple[Kind, str | None]
"""A kind, and the namespace in which it is listed; None for all namespaces."""


class Listing:
    """Lists the objects in `namespaces`, or in all. Every method blocks, and raises ApiError.

    A kind that the API server refuses to list blocks only itself, and a namespace only itself: see `refused_kinds` and
    `refused_namespaces`.

    `served`: the optional kinds to list, from the last `discover`. `kubernetes`: the version of the API server, as
    (major, minor); (0, 0) if it isn't known.
    """

    def __init__(self, api: KubernetesApi, store: Store, namespaces: tuple[str, ...]) -> None:
        self._api, self._store = api, store
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        # Replaced and never changed, because reconciles read it in other threads.
        self._refused: Mapping[Place, str] = {}
        self.served: frozenset[Kind] = frozenset()
        self.kubernetes = (0, 0)

    @property
    def refused(self) -> Mapping[Place, str]:
        """Returns why the API server refuses to list something, from the last listing."""
        return self._refused

    @property
    def refused_namespaces(self) -> frozenset[str]:
        """Returns the namespaces that can't be read: TritonModels, or a kind that can be read in others."""
        refused, kinds_refused = self._refused, self.refused_kinds
        return frozenset(namespace for kind, namespace in refused if namespace and kind not in kinds_refused)

    @property
    def refused_kinds(self) -> Mapping[Kind, str]:
        """Returns the kinds of children that can be read in no namespace, each with the API server's answer."""
        refused = self._refused
        closed = {ns for kind, ns in refused if kind == kinds.TRITON_MODEL}
        open_ = [ns for ns in self._namespaces if ns not in closed]
        return {
            kind: refused[kind, open_[0]]
            for kind in (*KINDS, kinds.POD)
            if open_ and all((kind, ns) in refused for ns in open_)
        }

    def open_namespaces(self) -> tuple[str, ...]:
        """Returns the namespaces to watch; none for all of the cluster."""
        namespaces, refused = [ns for ns in self._namespaces if ns], self.refused_namespaces
        return tuple([ns for ns in namespaces if ns not in refused] or namespaces)

    def discover(self) -> frozenset[Kind]:
        """Returns the optional kinds that the cluster has now."""
        return frozenset(k for k in _OPTIONAL if self._api.serves(k))

    def discover_version(self) -> tuple[int, int]:
        """Returns the version of the API server now, or the last known one if it doesn't say it. Raises nothing."""
        try:
            return kubernetes_version(self._api)
        except ApiError:
            return self.kubernetes

    def capabilities(self) -> Capabilities:
        """Returns what the cluster has, from the last discovery."""
        return Capabilities(
            monitoring=has_monitoring(self.served),
            missing=frozenset(kind for kind in _OPTIONAL if not self.serves(kind)),
            openshift=self.serves(kinds.SECURITY_CONTEXT_CONSTRAINTS),
            kubernetes=self.kubernetes,
        )

    def serves(self, kind: Kind) -> bool:
        return not kind.optional or kind in self.served

    def kinds(self) -> tuple[Kind, ...]:
        """Returns the kinds to watch: all that the cluster has and that can be read."""
        refused = self.refused_kinds
        candidates = (kinds.TRITON_MODEL, *filter(self.serves, KINDS), kinds.POD)
        return tuple(kind for kind in candidates if kind not in refused)

    def list_all(self) -> bool:
        """Lists all kinds; returns whether resourceVersions are lower than before, as after a restore of etcd."""
        rolled_back = False
        for namespace in self._namespaces:
            for kind in (*KINDS, kinds.POD):
                rolled_back |= self._list(kind, namespace, self._children)
        return self.list_models() or rolled_back

    def list_models(self) -> bool:
        """Lists the TritonModels; returns whether resourceVersions are lower than before.

        Raises ApiError if they can be read in no namespace.
        """
        rolled_back, kind = False, kinds.TRITON_MODEL
        for namespace in self._namespaces:
            rolled_back |= self._list(kind, namespace, self._api.list)
        if all((kind, namespace) in self._refused for namespace in self._namespaces):
            raise ApiError(403, "Forbidden", self._refused[kind, self._namespaces[0]])
        return rolled_back

    def is_readable_again(self) -> bool:
        """Returns whether the API server lists something now that it refused before."""
        return any(self._is_readable(*place) for place in self.refused)

    def _is_readable(self, kind: Kind, namespace: str | None) -> bool:
        try:
            next(iter(self._api.list(kind, namespace, names.MANAGED_SELECTOR)), None)
        except ApiError as error:
            if error.code != _REFUSED:
                raise
            return False
        return True

    def _list(
        self, kind: Kind, namespace: str | None, objects: Callable[[Kind, str | None], Iterator[dict[str, Any]]]
    ) -> bool:
        """Puts the objects into the store. Raises ApiError, unless the API server refuses the list."""
        try:
            rolled_back = self._replace(kind, namespace, objects)
        except ApiError as error:
            if error.code != _REFUSED:
                raise
            if (kind, namespace) not in self._refused:
                _log.warning("can't list %s in %s: %s", kind.plural, namespace or "all namespaces", error.message)
            self._refused = {**self._refused, (kind, namespace): error.message}
            return False
        self._refused = {place: why for place, why in self._refused.items() if place != (kind, namespace)}
        return rolled_back

    def _replace(
        self, kind: Kind, namespace: str | None, objects: Callable[[Kind, str | None], Iterator[dict[str, Any]]]
    ) -> bool:
        """Reads all pages, from the first one again if etcd has compacted the state that they are of."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._store.replace(kind.kind, objects(kind, namespace), namespace)
            except ApiError as error:
                if error.code != _EXPIRED:
                    raise
        return self._store.replace(kind.kind, objects(kind, namespace), namespace)

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

        Only for kinds that a TritonModel may no longer need. All other kinds are found when they are applied. Of those
        with another name than the operator gives, only the metadata is read: they are deleted.
        """
        # The pages end before the other requests: etcd keeps their state for five minutes only.
        listed = self._api.list(kind, namespace, names.UNMANAGED_SELECTOR, metadata=True)
        for child, owner in [(outline(child), owner) for child in listed if (owner := controller(child))]:
            if child["metadata"]["name"] not in names.of_children(owner["name"]):
                yield child
                continue
            try:
                yield self._api.get(kind, child["metadata"]["namespace"], child["metadata"]["name"])
            except ApiError as error:
                if error.code != 404:  # deleted in the meantime
                    raise


def has_monitoring(served: Collection[Kind]) -> bool:
    """Returns whether a cluster with these optional kinds has all that a TritonModel needs for its monitoring."""
    needed = [child.kind for child in CHILDREN if child.condition == MONITORING_AVAILABLE]
    return all(kind in served for kind in needed if kind.optional)
