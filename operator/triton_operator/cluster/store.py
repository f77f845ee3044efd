"""What the watches have shown: the last state of every object, and which TritonModel it belongs to."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from triton_operator.api import names

from .slim import slim

Object = dict[str, Any]
_REMEMBERED = 10_000
"""Removed objects that are remembered: more than can go while a request is answered."""
Key = str
"""namespace/name of a TritonModel."""


@dataclass(eq=False)
class _Meanwhile:
    """uids of what was put and removed while a listing was read, of which the listing can't know."""

    put: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)


class Store:
    """Objects by the TritonModel that they belong to. Safe to use from several threads.

    An event that is older than what is known (the answer to an own write, say) changes nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._objects: dict[Key, dict[tuple[str, str], Object]] = {}
        self._listings: list[_Meanwhile] = []
        self._gone: dict[str, int] = {}

    def put(self, obj: Object) -> Key | None:
        """Takes the state of an object; the key of its TritonModel where that is news, else None. What changed
        only where nobody looks is no news."""
        key = owner(obj)
        if key is None:
            return None
        with self._lock:
            group = self._objects.setdefault(key, {})
            known = group.get(_place(obj))
            if (known is not None and not _newer(obj, known)) or self._is_gone(obj):
                if not group:
                    del self._objects[key]
                return None
            kept = group[_place(obj)] = slim(obj)
            for listing in self._listings:
                listing.put.add(obj["metadata"]["uid"])
        return None if known is not None and _same(kept, known) else key

    def remove(self, obj: Object) -> Key | None:
        """Forgets an object that was deleted; the key of its TritonModel."""
        key = owner(obj)
        if key is None:
            return None
        with self._lock:
            for listing in self._listings:
                listing.removed.add(obj["metadata"]["uid"])
            self._note_gone(obj)
            group = self._objects.get(key, {})
            known = group.get(_place(obj))
            # A successor of the same name may be known already.
            if known is not None and known["metadata"]["uid"] == obj["metadata"]["uid"]:
                del group[_place(obj)]
            if not group:
                self._objects.pop(key, None)
        return key

    def _note_gone(self, obj: Object) -> None:
        self._gone[obj["metadata"]["uid"]] = int(obj["metadata"]["resourceVersion"])
        if len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]

    def _is_gone(self, obj: Object) -> bool:
        """Whether `obj` was removed since: the answer to a write can come after the event that tells of its end.
        One that only lost its label, and so its watch, is there in this state or a newer one."""
        return int(obj["metadata"]["resourceVersion"]) < self._gone.get(obj["metadata"]["uid"], 0)

    def replace(self, kind: str, objects: Iterable[Object], namespace: str | None = None) -> None:
        """Takes a complete list of one kind: what is known and not in it is forgotten.

        `objects` is read in here, page by page: what is put or removed meanwhile is newer than the listing.
        """
        listed, meanwhile = {}, _Meanwhile()
        with self._lock:
            self._listings.append(meanwhile)
        try:
            for obj in objects:
                key = owner(obj)
                if key is not None:
                    listed[(key, obj["metadata"]["name"])] = obj
            with self._lock:
                for key, group in list(self._objects.items()):
                    if namespace is not None and key.split("/")[0] != namespace:
                        continue
                    missing = [p for p in group if p[0] == kind and (key, p[1]) not in listed]
                    for place in missing:
                        if group[place]["metadata"]["uid"] not in meanwhile.put:
                            del group[place]
                    if not group:
                        del self._objects[key]
                for obj in listed.values():
                    if obj["metadata"]["uid"] not in meanwhile.removed:
                        self.put(obj)
        finally:
            with self._lock:
                self._listings.remove(meanwhile)

    def known(self) -> list[Key]:
        """Every TritonModel of which anything is known."""
        with self._lock:
            return list(self._objects)

    def model(self, key: Key) -> Object | None:
        return next(iter(self.of_kind(key, names.KIND)), None)

    def models(self) -> list[Object]:
        with self._lock:
            return [o for group in self._objects.values() for o in group.values() if o["kind"] == names.KIND]

    def of_kind(self, key: Key, kind: str) -> list[Object]:
        with self._lock:
            return [o for o in self._objects.get(key, {}).values() if o["kind"] == kind]

    def children(self, key: Key, uid: str) -> list[Object]:
        """Objects whose controller is the TritonModel with this uid."""
        with self._lock:
            group = list(self._objects.get(key, {}).values())
        return [o for o in group if (ref := controller(o)) is not None and ref["uid"] == uid]


def controller(obj: Object) -> Object | None:
    """The owner reference to the TritonModel that made `obj`; None where no TritonModel did."""
    references: list[Object] = obj["metadata"].get("ownerReferences", [])
    return next(
        (
            r
            for r in references
            if r.get("controller") and r["kind"] == names.KIND and r["apiVersion"].split("/")[0] == names.GROUP
        ),
        None,
    )


def owner(obj: Object) -> Key | None:
    """Which TritonModel an object belongs to: itself, its controller, or, for pods, the one on the label."""
    metadata = obj["metadata"]
    if obj["kind"] == names.KIND:
        return f"{metadata['namespace']}/{metadata['name']}"
    reference = controller(obj)
    name = reference["name"] if reference else metadata.get("labels", {}).get(names.LABEL_INSTANCE)
    return f"{metadata['namespace']}/{name}" if name else None


def _place(obj: Object) -> tuple[str, str]:
    return obj["kind"], obj["metadata"]["name"]


def _same(kept: Object, known: Object) -> bool:
    """Whether two states of an object are alike in all that is kept of them."""

    def plain(obj: Object) -> Object:
        return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}}

    return plain(kept) == plain(known)


def _newer(obj: Object, known: Object) -> bool:
    new, old = obj["metadata"], known["metadata"]
    if new["uid"] != old["uid"]:
        return True
    # Comparable as numbers since Kubernetes 1.35 by contract, and before that in fact.
    return int(new["resourceVersion"]) > int(old["resourceVersion"])
