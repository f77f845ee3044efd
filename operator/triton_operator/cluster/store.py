"""The last state of every watched object, by the TritonModel that it belongs to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from triton_operator.api import names
from triton_operator.render.children import CONDITIONAL, KINDS

from .entry import Entry, Large
from .objects import Key, Object, ObjectId, controller, described, id_of, owner, state, uid_of
from .table import Table

_CONDITIONAL = {kind.kind for kind in CONDITIONAL}
_MADE = {kind.kind for kind in KINDS}
"""The child kinds. Objects of other kinds with a TritonModel as controller don't come from the operator."""
_UNREADABLE = object()
T = TypeVar("T")
_log = logging.getLogger(__name__)


class Store:
    """Objects by the TritonModel that they belong to. Safe to use from several threads.

    An event that is older than the stored state (such as the answer to a write of our own) is ignored. A listing
    replaces the stored state even if it is older, because resourceVersions restart at lower numbers after a restore of
    etcd.

    All objects together take about `room` bytes, and never more than twice that. When they take more than `room`, the
    store keeps only `outline` of new objects in the namespaces that use the most memory, until a listing finds room.
    """

    def __init__(self, room: int = 96 << 20) -> None:
        self._lock = threading.RLock()
        self._table = Table(room)

    def put(self, obj: Object) -> Key | None:
        """Stores the state of an object. Returns the key of its TritonModel if the state has changed, otherwise None.

        Ignores changes in fields that are not stored.
        """
        key = owner(obj)
        if key is None:
            return None
        object_id, metadata = id_of(obj), obj["metadata"]
        with self._lock:
            # Half of all events follow our own writes, whose answers are stored already.
            if self._table.knows(key, object_id, metadata["uid"], int(metadata["resourceVersion"])):
                return None
        entry = _entry(obj)
        with self._lock:
            return key if self._table.take(key, object_id, entry) else None

    def remove(self, obj: Object) -> Key | None:
        """Forgets a deleted object. Returns the key of its TritonModel."""
        key = owner(obj)
        if key is None:
            return None
        metadata = obj["metadata"]
        with self._lock:
            self._table.remove(key, id_of(obj), metadata["uid"], int(metadata["resourceVersion"]))
            if obj["kind"] == names.KIND:
                self._table.lost.forget(key)
        return key

    def mark_lost(self, obj: Object) -> Key | None:
        """Like `remove`, for a deletion that a watch reports. Returns the key of the object's TritonModel.

        A watch also reports a deletion when an object loses the label that the watch selects. So conditional children
        are marked as lost until `unmark_lost` is called. Other children are found when they are applied again.
        """
        with self._lock:
            key = self.remove(obj)
            # Kubernetes' garbage collector deletes the children of a deleted TritonModel.
            if key is not None and obj["kind"] in _CONDITIONAL and (group := self._table.group(key)):
                object_id = id_of(obj)
                if object_id not in group and any(kind == names.KIND for kind, _ in group):
                    self._table.lost.add(key, object_id, obj["metadata"]["uid"])
        return key

    def lost(self, key: Key) -> set[ObjectId]:
        """Returns the objects that may still exist without their label."""
        with self._lock:
            return self._table.lost.of(key)

    def unmark_lost(self, key: Key, object_id: ObjectId) -> None:
        """Removes the mark that `mark_lost` set."""
        with self._lock:
            self._table.lost.remove(key, object_id)

    def replace(self, kind: str, objects: Iterable[Object], namespace: str | None = None) -> bool:
        """Replaces the stored objects of one kind by a complete list.

        Returns whether an object has an older state in the list than in the store, as after a restore of etcd.
        `objects` is read page by page. Changes while it is read are newer than the list.
        """
        entries: dict[tuple[Key, ObjectId], Entry] = {}
        unreadable: set[str] = set()
        with self._lock:
            listing = self._table.begin(kind, namespace)
        try:
            for obj in objects:
                try:
                    key = owner(obj)
                    if key is not None:
                        entries[key, id_of(obj)] = self._listed(key, obj)
                except Exception:
                    # One malformed object must not stop the listing. Its last state stays.
                    _log.exception("failed to read %s %s", kind, described(obj))
                    unreadable.add(uid_of(obj))
            with self._lock:
                rolled_back = self._table.replace(listing, entries, unreadable)
                self._table.lost.forget_listed(
                    kind, namespace, listing.removed, lambda key: self.model(key) is not None
                )
                return rolled_back
        finally:
            with self._lock:
                self._table.end(listing)

    def _listed(self, key: Key, obj: Object) -> Entry:
        """Returns the state in a listing. Most are stored already and aren't compressed again."""
        object_id, metadata = id_of(obj), obj["metadata"]
        with self._lock:
            last = self._table.group(key).get(object_id)
        version = int(metadata["resourceVersion"])
        if last is not None and (last.uid, last.version) == (metadata["uid"], version) and not last.crowded:
            return last
        entry = _entry(obj)
        with self._lock:
            return self._table.fit(key, object_id, entry)

    @property
    def memory(self) -> int:
        """Bytes that the objects take, by the count that `room` limits."""
        return self._table.memory

    def all_keys(self) -> list[Key]:
        """Returns the keys of all TritonModels, the most recently changed first."""
        with self._lock:
            versions = {key: max(e.version for e in group.values()) for key, group in self._table.groups()}
        return sorted(versions, key=versions.__getitem__, reverse=True)

    def model(self, key: Key) -> Object | None:
        return next(iter(self.of_kind(key, names.KIND)), None)

    def map_kind(self, kind: str, function: Callable[[Object], T]) -> list[tuple[Key, T]]:
        """Returns `function(object)` for every object of this kind.

        Calls it once for each state, so it must be the same function each time. Leaves out objects on which it fails,
        and objects that are too large.
        """
        with self._lock:
            entries = [
                (key, entry)
                for key, group in self._table.groups()
                for (k, _), entry in group.items()
                if k == kind and not entry.large
            ]
        for key, entry in entries:
            if entry.mapped is None:
                try:
                    entry.mapped = function(entry.object)
                except Exception:
                    _log.exception("failed to read the %s of %s", kind, key)
                    entry.mapped = _UNREADABLE
        return [(key, entry.mapped) for key, entry in entries if entry.mapped is not _UNREADABLE]

    def large(self, key: Key, uid: str) -> list[Large]:
        """Returns the objects of the TritonModel with this uid of which only `outline` is stored, including itself."""
        with self._lock:
            group = self._table.group(key).items()
            entries = [(object_id, e) for object_id, e in group if e.large and uid in (e.uid, e.controller)]
            return [Large(*object_id, e.large, e.crowded) for object_id, e in entries if e.large]

    def of_kind(self, key: Key, kind: str) -> list[Object]:
        with self._lock:
            entries = [entry for (k, _), entry in self._table.group(key).items() if k == kind]
        return [entry.object for entry in entries]

    def children(self, key: Key, uid: str, before: Iterable[Object] = ()) -> list[Object]:
        """Returns the objects whose controller is the TritonModel with this uid.

        `before`: an earlier result. Its unchanged objects are returned again, and not read from their JSON.
        """
        with self._lock:
            entries = [e for (k, _), e in self._table.group(key).items() if k in _MADE and e.controller == uid]
        unchanged = {state(obj): obj for obj in before}
        return [unchanged.get(entry.state) or entry.object for entry in entries]

    def leftovers(self, key: Key, uid: str = "") -> list[Object]:
        """Returns the objects whose controller is a TritonModel with this name and another uid."""
        with self._lock:
            group = self._table.group(key).items()
            entries = [e for (k, _), e in group if k in _MADE and e.controller not in ("", uid)]
        return [entry.object for entry in entries]


def _entry(obj: Object) -> Entry:
    reference = controller(obj)
    return Entry.of(obj, reference["uid"] if reference else "")
