"""The last state of every watched object, by the TritonModel that it belongs to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind
from triton_operator.render.children import CONDITIONAL, KINDS
from triton_operator.shares import Shares

from .entry import Entry, Large

Object = dict[str, Any]
Key = str
"""namespace/name of a TritonModel."""
ObjectId = tuple[str, str]
"""Kind and name."""
MAX_ENDED = 20
"""Number of ended pods of one TritonModel that are stored: the newest ones, for the status. Each evicted server leaves
one, Kubernetes keeps up to 12,500 in the cluster, and each reconcile reads all that are stored."""
_REMEMBERED = 10_000
"""Number of deleted objects that are remembered. More than can be deleted while a request is in flight."""
_CONDITIONAL = {kind.kind for kind in CONDITIONAL}
_MADE = {kind.kind for kind in KINDS}
"""The child kinds. Objects of other kinds with a TritonModel as controller don't come from the operator."""
_UNREADABLE = object()
T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _ConcurrentChanges:
    """Changes while a listing is read, which the listing may not contain.

    `put`: the newest state of each object. `removed`: uids.
    """

    put: dict[tuple[Key, ObjectId], Entry] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)


class Store:
    """Objects by the TritonModel that they belong to. Safe to use from several threads.

    An event that is older than the stored state (such as the answer to a write of our own) is ignored. A listing
    replaces the stored state even if it is older, because resourceVersions restart at lower numbers after a restore of
    etcd.

    All objects together take about `room` bytes, and never more than twice that. When they take more than `room`, the
    store keeps only `brief` of new objects in the namespaces that use the most memory, until a listing finds room.
    """

    def __init__(self, room: int = 96 << 20) -> None:
        self._lock = threading.RLock()
        self._room, self._shares = room, Shares(room)
        self._objects: dict[Key, dict[ObjectId, Entry]] = {}
        self._listings: list[_ConcurrentChanges] = []
        self._gone: dict[str, int] = {}
        self._lost: dict[Key, dict[ObjectId, str]] = {}

    def put(self, obj: Object) -> Key | None:
        """Stores the state of an object. Returns the key of its TritonModel if the state has changed, otherwise None.

        Ignores changes in fields that are not stored.
        """
        key = owner(obj)
        if key is None:
            return None
        object_id, metadata = _object_id(obj), obj["metadata"]
        with self._lock:
            # Half of all events follow our own writes, whose answers are stored already.
            last, version = self._objects.get(key, {}).get(object_id), int(metadata["resourceVersion"])
            if _is_old(last, metadata["uid"], version) and not (self._listings and last and last.version > version):
                return None
        return key if self._take(key, object_id, _entry(obj)) else None

    def _take(self, key: Key, object_id: ObjectId, entry: Entry) -> bool:
        """Stores a state; returns whether it has changed."""
        with self._lock:
            group = self._objects.setdefault(key, {})
            last = group.get(object_id)
            entry = self._fitted(key, entry, last)
            if not self._is_gone(entry):
                for listing in self._listings:
                    listing.put[key, object_id] = _newest(entry, listing.put.get((key, object_id)))
            if _is_old(last, entry.uid, entry.version) or self._is_gone(entry):
                self._give_back(key, entry)
                self._charge(key, last)
                if not group:
                    del self._objects[key]
                return False
            group[object_id] = entry
            self._lost.get(key, {}).pop(object_id, None)
            if entry.ended:
                self._drop_ended(key, group)
        return last is None or last.body != entry.body

    def _fitted(self, key: Key, entry: Entry, last: Entry | None) -> Entry:
        """Returns the state to store in place of `last`: `entry`, or its brief if the namespace has no room for it."""
        self._give_back(key, last)
        grows = last is None or last.crowded or entry.memory > last.memory
        if grows and not self._shares.may_take(_namespace(key), entry.memory):
            entry = entry.in_brief()
        self._charge(key, entry)
        return entry

    def _drop_ended(self, key: Key, group: dict[ObjectId, Entry]) -> None:
        """Drops all but the newest ended pods of one TritonModel."""
        pods = sorted((entry.version, object_id) for object_id, entry in group.items() if entry.ended)
        for _, object_id in pods[:-MAX_ENDED]:
            self._give_back(key, group.pop(object_id))

    def _charge(self, key: Key, entry: Entry | None) -> None:
        if entry is not None:
            self._shares.take(_namespace(key), entry.memory)

    def _give_back(self, key: Key, entry: Entry | None) -> None:
        if entry is not None:
            self._shares.give_back(_namespace(key), entry.memory)

    def _recount(self) -> None:
        """Counts the memory again, without states that a listing has read but not stored."""
        self._shares = Shares(self._room)
        for key, group in self._objects.items():
            for entry in group.values():
                self._charge(key, entry)

    def remove(self, obj: Object) -> Key | None:
        """Forgets a deleted object. Returns the key of its TritonModel."""
        key = owner(obj)
        if key is None:
            return None
        with self._lock:
            for listing in self._listings:
                listing.removed.add(obj["metadata"]["uid"])
            self._record_deletion(obj)
            group = self._objects.get(key, {})
            last = group.get(_object_id(obj))
            # A new object with the same name may be stored already.
            if last is not None and last.uid == obj["metadata"]["uid"]:
                self._give_back(key, group.pop(_object_id(obj)))
            if not group:
                self._objects.pop(key, None)
            if obj["kind"] == names.KIND:
                self._lost.pop(key, None)
        return key

    def mark_lost(self, obj: Object) -> Key | None:
        """Like `remove`, for a deletion that a watch reports. Returns the key of the object's TritonModel.

        A watch also reports a deletion when an object loses the label that the watch selects. So conditional children
        are marked as lost until `unmark_lost` is called. Other children are found when they are applied again.
        """
        with self._lock:
            key = self.remove(obj)
            # Kubernetes' garbage collector deletes the children of a deleted TritonModel.
            if key is not None and obj["kind"] in _CONDITIONAL and (group := self._objects.get(key)):
                object_id = _object_id(obj)
                if object_id not in group and any(kind == names.KIND for kind, _ in group):
                    self._lost.setdefault(key, {})[object_id] = obj["metadata"]["uid"]
        return key

    def lost(self, key: Key) -> set[ObjectId]:
        """Returns the objects that may still exist without their label."""
        with self._lock:
            return set(self._lost.get(key, ()))

    def unmark_lost(self, key: Key, object_id: ObjectId) -> None:
        """Removes the mark that `mark_lost` set."""
        with self._lock:
            self._lost.get(key, {}).pop(object_id, None)

    def _record_deletion(self, obj: Object) -> None:
        self._gone[obj["metadata"]["uid"]] = int(obj["metadata"]["resourceVersion"])
        if len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]

    def _is_gone(self, entry: Entry) -> bool:
        """Returns whether the object was deleted after this state.

        The answer to a write can arrive after the event of the deletion. An object that has only lost its label has
        this state or a newer one.
        """
        return entry.version < self._gone.get(entry.uid, 0)

    def replace(self, kind: str, objects: Iterable[Object], namespace: str | None = None) -> bool:
        """Replaces the stored objects of one kind by a complete list.

        Returns whether an object has an older state in the list than in the store, as after a restore of etcd.
        `objects` is read page by page. Changes while it is read are newer than the list.
        """
        entries: dict[tuple[Key, ObjectId], Entry] = {}
        unreadable: set[str] = set()
        changes = _ConcurrentChanges()
        with self._lock:
            self._listings.append(changes)
        try:
            for obj in objects:
                try:
                    key = owner(obj)
                    if key is not None:
                        entries[key, _object_id(obj)] = self._listed(key, obj)
                except Exception:
                    # One malformed object must not stop the listing. Its last state stays.
                    _log.exception("failed to read %s %s", kind, _described(obj))
                    unreadable.add(_uid(obj))
            with self._lock:
                for key, group in list(self._objects.items()):
                    if namespace is not None and _namespace(key) != namespace:
                        continue
                    missing = [o for o in group if o[0] == kind and (key, o) not in entries]
                    for object_id in missing:
                        entry = group[object_id]
                        if changes.put.get((key, object_id)) is not entry and entry.uid not in unreadable:
                            del group[object_id]
                    if not group:
                        del self._objects[key]
                rolled_back = [
                    self._set(key, object_id, entry, changes)
                    for (key, object_id), entry in entries.items()
                    if entry.uid not in changes.removed
                ]
                for key in {key for (key, _), entry in entries.items() if entry.ended}:
                    self._drop_ended(key, self._objects.get(key, {}))
                self._forget_lost(kind, namespace, changes)
                return any(rolled_back)
        finally:
            with self._lock:
                self._listings.remove(changes)
                self._recount()

    def _listed(self, key: Key, obj: Object) -> Entry:
        """Returns the state in a listing. Most are stored already and aren't compressed again."""
        with self._lock:
            last = self._objects.get(key, {}).get(_object_id(obj))
        metadata = obj["metadata"]
        state = metadata["uid"], int(metadata["resourceVersion"])
        if last is not None and (last.uid, last.version) == state and not last.crowded:
            return last
        entry = _entry(obj)
        with self._lock:
            return self._fitted(key, entry, last)

    def _set(self, key: Key, object_id: ObjectId, entry: Entry, changes: _ConcurrentChanges) -> bool:
        """Stores the state in a listing, or a concurrent newer one.

        Returns whether the store had a newer state than the listing.
        """
        change = changes.put.get((key, object_id))
        newest = _newest(entry, change)
        group = self._objects.setdefault(key, {})
        last = group.get(object_id)
        is_newer = last is not None and last is not change and last.version > newest.version
        rolled_back = self._is_gone(entry) or is_newer
        self._gone.pop(entry.uid, None)
        if last is not None and (last.uid, last.version) == (newest.uid, newest.version) and not last.crowded:
            return rolled_back  # keeps the cached result of `map_kind`
        group[object_id] = newest
        self._lost.get(key, {}).pop(object_id, None)
        for listing in self._listings:
            if listing is not changes:
                listing.put[key, object_id] = _newest(newest, listing.put.get((key, object_id)))
        return rolled_back

    def _forget_lost(self, kind: str, namespace: str | None, changes: _ConcurrentChanges) -> None:
        """Removes the marks that `mark_lost` set for one kind: a listing also contains objects without the label."""
        for key, uids in list(self._lost.items()):
            if namespace is not None and _namespace(key) != namespace:
                continue
            if kind == names.KIND and self.model(key) is None:
                del self._lost[key]
            for object_id in [o for o, uid in uids.items() if o[0] == kind and uid not in changes.removed]:
                del uids[object_id]

    def all_keys(self) -> list[Key]:
        """Returns the keys of all TritonModels, the most recently changed first."""
        with self._lock:
            versions = {key: max(e.version for e in group.values()) for key, group in self._objects.items()}
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
                for key, group in self._objects.items()
                for (k, _), entry in group.items()
                if k == kind and not entry.large
            ]
        for key, entry in entries:
            if entry.seen is None:
                try:
                    entry.seen = function(entry.object)
                except Exception:
                    _log.exception("failed to read the %s of %s", kind, key)
                    entry.seen = _UNREADABLE
        return [(key, entry.seen) for key, entry in entries if entry.seen is not _UNREADABLE]

    def large(self, key: Key, uid: str) -> list[Large]:
        """Returns the objects of the TritonModel with this uid of which only `brief` is stored, including itself."""
        with self._lock:
            group = self._objects.get(key, {}).items()
            entries = [(object_id, e) for object_id, e in group if e.large and uid in (e.uid, e.controller)]
            return [Large(*object_id, e.large, e.crowded) for object_id, e in entries if e.large]

    def of_kind(self, key: Key, kind: str) -> list[Object]:
        with self._lock:
            entries = [entry for (k, _), entry in self._objects.get(key, {}).items() if k == kind]
        return [entry.object for entry in entries]

    def children(self, key: Key, uid: str, before: Iterable[Object] = ()) -> list[Object]:
        """Returns the objects whose controller is the TritonModel with this uid.

        `before`: an earlier result. Its unchanged objects are returned again, and not read from their JSON.
        """
        with self._lock:
            entries = [e for (k, _), e in self._objects.get(key, {}).items() if k in _MADE and e.controller == uid]
        unchanged = {state(obj): obj for obj in before}
        return [unchanged.get(entry.state) or entry.object for entry in entries]

    def leftovers(self, key: Key, uid: str = "") -> list[Object]:
        """Returns the objects whose controller is a TritonModel with this name and another uid."""
        with self._lock:
            group = self._objects.get(key, {}).items()
            entries = [e for (k, _), e in group if k in _MADE and e.controller not in ("", uid)]
        return [entry.object for entry in entries]


def controller(obj: Object, kind: Kind = kinds.TRITON_MODEL) -> Object | None:
    """Returns the owner reference to the controller of `obj`; None if it has no controller of this kind."""
    references: list[Object] = obj["metadata"].get("ownerReferences", [])
    return next(
        (
            r
            for r in references
            if r.get("controller") and r["kind"] == kind.kind and r["apiVersion"].split("/")[0] == kind.group
        ),
        None,
    )


def owner(obj: Object) -> Key | None:
    """Returns the key of the TritonModel that an object belongs to; None if there is none.

    It is the object itself, its controller, or, for pods and objects without a controller, the name in the label.
    """
    metadata = obj["metadata"]
    if obj["kind"] == names.KIND:
        return f"{metadata['namespace']}/{metadata['name']}"
    reference, labels = controller(obj), metadata.get("labels", {})
    name = reference["name"] if reference else labels.get(names.LABEL_MODEL)
    return f"{metadata['namespace']}/{name}" if name else None


def _entry(obj: Object) -> Entry:
    reference = controller(obj)
    return Entry.of(obj, reference["uid"] if reference else "")


def _is_old(last: Entry | None, uid: str, version: int) -> bool:
    """Returns whether `last` is a state of the same object, with this version or a newer one.

    resourceVersions are comparable as numbers, officially since Kubernetes 1.35.
    """
    return last is not None and last.uid == uid and last.version >= version


def _newest(entry: Entry, other: Entry | None) -> Entry:
    return entry if other is None or entry.version >= other.version else other


def _namespace(key: Key) -> str:
    return key.partition("/")[0]


def state(obj: Object) -> str:
    """Identifies a state of an object: uid and resourceVersion, as Entry.state."""
    return f"{obj['metadata']['uid']} {obj['metadata'].get('resourceVersion', '')}"


def _uid(obj: Any) -> str:
    try:
        return str(obj["metadata"]["uid"])
    except (KeyError, TypeError):
        return ""


def _described(obj: Any) -> str:
    """namespace/name of a value that may not be an object."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    fields = metadata if isinstance(metadata, dict) else {}
    return f"{fields.get('namespace', '')}/{fields.get('name', '')}"


def _object_id(obj: Object) -> ObjectId:
    return obj["kind"], obj["metadata"]["name"]
