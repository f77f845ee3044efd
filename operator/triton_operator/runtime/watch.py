"""The watches of the operator: TritonModels by kopf, their children by an informer for each kind and namespace."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from triton_operator.api import names
from triton_operator.api.kinds import TRITON_MODEL, Kind
from triton_operator.cluster.api import KubernetesApi

from .informer import Informer
from .model_watch import ModelWatch

OnEvent = Callable[[str, dict[str, Any]], None]
_Place = tuple[Kind, str | None]
_ALL: tuple[None] = (None,)


class Watches:
    """Calls `on_event(type, object)` for each change, and `on_begin()` when a watch begins with all objects.

    `type` is ADDED, MODIFIED or DELETED. Both are called in the watches' threads.
    """

    def __init__(self, api: KubernetesApi, on_event: OnEvent, on_begin: Callable[[], None]) -> None:
        self._api, self._on_event, self._on_begin = api, on_event, on_begin
        self._informers: dict[_Place, Informer] = {}
        self._models: ModelWatch | None = None
        self._namespaces: tuple[str, ...] = ()

    def set(self, kinds: Collection[Kind], namespaces: tuple[str, ...]) -> None:
        """Watches the TritonModels, and the objects of `kinds`, in `namespaces`; in all of them if there are none.

        Watches that exist already continue.
        """
        places = {(kind, namespace) for kind in kinds if kind != TRITON_MODEL for namespace in namespaces or _ALL}
        for place in self._informers.keys() - places:
            self._informers.pop(place).stop()
        for kind, namespace in places - self._informers.keys():
            self._informers[kind, namespace] = Informer(
                self._api, kind, namespace, names.MANAGED_SELECTOR, self._on_event, self._on_begin
            )
        if self._models is None or namespaces != self._namespaces:
            if self._models is not None:
                self._models.stop()
            self._models = ModelWatch(self._api, namespaces, self._on_event, self._on_begin)
        self._namespaces = namespaces

    def restart(self) -> None:
        """Begins all watches again."""
        kinds = {kind for kind, _ in self._informers}
        self.stop()
        self._informers, self._models = {}, None
        self.set(kinds, self._namespaces)

    def compare(self, uids: Collection[str]) -> None:
        """Begins the watch of TritonModels again if it doesn't report these, which a listing has."""
        if self._models is not None:
            self._models.compare(uids)

    def stop(self) -> None:
        """Ends all watches without waiting for their threads."""
        for informer in self._informers.values():
            informer.stop()
        if self._models is not None:
            self._models.stop()

    @property
    def closed(self) -> frozenset[str]:
        """The plurals of the kinds of which a watch isn't open."""
        kinds = {kind.plural for (kind, _), informer in self._informers.items() if not informer.watches}
        models = self._models is not None and self._models.watches
        return frozenset(kinds if models else {*kinds, TRITON_MODEL.plural})
