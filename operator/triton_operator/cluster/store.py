"""The last state of every watched object, by the TritonModel that it belongs to."""

from __future__ import annotations

import dataclasses
import logging
import threading
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind
from triton_operator.render.children import CONDITIONAL, KINDS
from triton_operator.shares import Shares

from . import shallow
from .shallow import Size, size
from .slim import brief, slim

Object = dict[str, Any]
Key = str
"""namespace/name of a TritonModel."""
ObjectId = tuple[str, str]
"""Kind and name."""
_LONG = 4096
"""Minimum size in bytes of JSON that is compressed: Deployments and rules."""
LARGEST = 256 << 10
"""Maximum size of a TritonModel without its status, in bytes of JSON. Of a larger one, only `brief` is stored. Children
may be larger, because one spec field can appear in several of them."""
_LARGEST_STATUS = 512 << 10
_EACH = 1 << 10
"""Memory of a stored object in addition to its JSON, in bytes."""
_REMEMBERED = 10_000
"""Number of deleted objects that are remembered. More than can be deleted while a request is in flight."""
_CONDITIONAL = {kind.kind for kind in CONDITIONAL}
_MADE = {kind.kind for kind in KINDS}
"""The child kinds. Objects of other kinds with a TritonModel as controller don't come from the operator."""
_UNREADABLE = object()
T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Large:
    """An object of which only `brief` is stored, and the size of its JSON.

    `crowded`: whether the reason is that its namespace uses more than its share of the memory, and not its own size.
    """

    kind: str
    name: str
    size: Size
    crowded: bool


@dataclass(eq=False, slots=True)
class _Entry:
    """One state of an object.

    - `body`: its JSON, compressed if it is long. Python objects would take about ten times as much memory.
    - `controller`: uid of its controller.
    - `large`: its size if only `brief` is stored, otherwise None. `crowded`: see Large.
    - `seen`: cached result of `Store.map_kind`.
    """

    uid: str
    controller: str
    version: int
    body: bytes
    large: Size | None = None
    crowded: bool = False
    seen: Any = None

    @classmethod
    def of(cls, obj: Object) -> _Entry:
        metadata, reference = obj["metadata"], controller(obj)
        text, large = _text(obj)
        return cls(
            metadata["uid"],
            reference["uid"] if reference else "",
            int(metadata["resourceVersion"]),
            zlib.compress(text, 1) if len(text) > _LONG else text,
            large,
        )

    @property
    def memory(self) -> int:
        """Bytes."""
        return len(self.body) + _EACH

    def in_brief(self) -> _Entry:
        """This state without the parts that need much memory, such as the models in the status."""
        small = brief(self.object)
        small.get("status", {}).pop("models", None)
        return dataclasses.replace(
            self, body=_dumps(small), large=self.large or size(self.body), crowded=True, seen=None
        )

    @property
    def object(self) -> Object:
        text = self.body if self.body.startswith(b"{") else zlib.decompress(self.body)
        obj: Object = orjson.loads(text)
        obj["metadata"]["resourceVersion"] = str(self.version)
        return obj


def _text(obj: Object) -> tuple[bytes, Size | None]:
    """Returns the JSON to store, and the object's size if it is too large, so that only `brief` is stored."""
    large: Size | None = obj.get(shallow.TOO_LARGE)
    if large is None:
        text = _dumps(slim(obj))
        if obj["kind"] != names.KIND or _fits(obj, size(text)):
            return text, None
        large = size(text)
    small = brief(obj)
    if not _status(obj).fits(_LARGEST_STATUS):
        small["status"] = {}
    return _dumps(small), large


def _fits(model: Object, measured: Size) -> bool:
    if measured.fits(LARGEST):
        return True
    rest = size(_dumps(slim({**model, "status": {}})))
    return rest.fits(LARGEST) and _status(model).fits(_LARGEST_STATUS)


def _status(model: Object) -> Size:
    return size(shallow.dumps(model.get("status")))


def _dumps(obj: Object) -> bytes:
    """JSON without the resourceVersion, because a change of nothing else needs no reconcile."""
    metadata = {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}
    return shallow.dumps({**obj, "metadata": metadata})


@dataclass(eq=False)
class _ConcurrentChanges:
    """Changes while a listing is read, which the listing may not contain.

    `put`: the newest state of each object. `removed`: uids.
    """

    put: dict[tuple[Key, ObjectId], _Entry] = field(default_factory=dict)
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
        self._objects: dict[Key, dict[ObjectId, _Entry]] = {}
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
            known, version = self._objects.get(key, {}).get(object_id), int(metadata["resourceVersion"])
            if _is_old(known, metadata["uid"], version) and not (self._listings and known and known.version > version):
                return None
        return key if self._take(key, object_id, _Entry.of(obj)) else None

    def _take(self, key: Key, object_id: ObjectId, kept: _Entry) -> bool:
        """Stores a state; returns whether it has changed."""
        with self._lock:
            group = self._objects.setdefault(key, {})
            known = group.get(object_id)
            kept = self._fitted(key, kept, known)
            if not self._is_gone(kept):
                for listing in self._listings:
                    listing.put[key, object_id] = _newest(kept, listing.put.get((key, object_id)))
            if _is_old(known, kept.uid, kept.version) or self._is_gone(kept):
                self._give_back(key, kept)
                self._charge(key, known)
                if not group:
                    del self._objects[key]
                return False
            group[object_id] = kept
            self._lost.get(key, {}).pop(object_id, None)
        return known is None or known.body != kept.body

    def _fitted(self, key: Key, kept: _Entry, known: _Entry | None) -> _Entry:
        """Returns the state to store in place of `known`: `kept`, or its brief if the namespace has no room for it."""
        self._give_back(key, known)
        grows = known is None or known.crowded or kept.memory > known.memory
        if grows and not self._shares.may_take(_namespace(key), kept.memory):
            kept = kept.in_brief()
        self._charge(key, kept)
        return kept

    def _charge(self, key: Key, kept: _Entry | None) -> None:
        if kept is not None:
            self._shares.take(_namespace(key), kept.memory)

    def _give_back(self, key: Key, kept: _Entry | None) -> None:
        if kept is not None:
            self._shares.give_back(_namespace(key), kept.memory)

    def _recount(self) -> None:
        """Counts the memory again, without states that a listing has read but not stored."""
        self._shares = Shares(self._room)
        for key, group in self._objects.items():
            for kept in group.values():
                self._charge(key, kept)

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
            known = group.get(_object_id(obj))
            # A new object with the same name may be stored already.
            if known is not None and known.uid == obj["metadata"]["uid"]:
                self._give_back(key, group.pop(_object_id(obj)))
            if not group:
                self._objects.pop(key, None)
            if obj["kind"] == names.KIND:
                self._lost.pop(key, None)
        return key

    def mark_lost(self, obj: Object) -> Key | None:
        """Like `remove`, for a deletion that a watch reports. Returns the key of the object's TritonModel.

        A watch also reports a deletion when an object loses the label that the watch selects. So conditional children
        are marked as lost until `found` is called. Other children are found when they are applied again.
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

    def found(self, key: Key, object_id: ObjectId) -> None:
        """Removes the mark that `mark_lost` set."""
        with self._lock:
            self._lost.get(key, {}).pop(object_id, None)

    def _record_deletion(self, obj: Object) -> None:
        self._gone[obj["metadata"]["uid"]] = int(obj["metadata"]["resourceVersion"])
        if len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]

    def _is_gone(self, kept: _Entry) -> bool:
        """Returns whether the object was deleted after this state.

        The answer to a write can arrive after the event of the deletion. An object that has only lost its label has
        this state or a newer one.
        """
        return kept.version < self._gone.get(kept.uid, 0)

    def replace(self, kind: str, objects: Iterable[Object], namespace: str | None = None) -> bool:
        """Replaces the stored objects of one kind by a complete list.

        Returns whether an object has an older state in the list than in the store, as after a restore of etcd.
        `objects` is read page by page. Changes while it is read are newer than the list.
        """
        listed: dict[tuple[Key, ObjectId], _Entry] = {}
        unreadable: set[str] = set()
        meanwhile = _ConcurrentChanges()
        with self._lock:
            self._listings.append(meanwhile)
        try:
            for obj in objects:
                try:
                    key = owner(obj)
                    if key is not None:
                        listed[key, _object_id(obj)] = self._listed(key, obj)
                except Exception:
                    # One malformed object must not stop the listing. Its last state stays.
                    _log.exception("failed to read %s %s", kind, _described(obj))
                    unreadable.add(_uid(obj))
            with self._lock:
                for key, group in list(self._objects.items()):
                    if namespace is not None and _namespace(key) != namespace:
                        continue
                    missing = [p for p in group if p[0] == kind and (key, p) not in listed]
                    for object_id in missing:
                        kept = group[object_id]
                        if meanwhile.put.get((key, object_id)) is not kept and kept.uid not in unreadable:
                            del group[object_id]
                    if not group:
                        del self._objects[key]
                rolled_back = [
                    self._set(key, object_id, kept, meanwhile)
                    for (key, object_id), kept in listed.items()
                    if kept.uid not in meanwhile.removed
                ]
                self._forget_lost(kind, namespace, meanwhile)
                return any(rolled_back)
        finally:
            with self._lock:
                self._listings.remove(meanwhile)
                self._recount()

    def _listed(self, key: Key, obj: Object) -> _Entry:
        """Returns the state in a listing. Most are stored already and aren't compressed again."""
        with self._lock:
            known = self._objects.get(key, {}).get(_object_id(obj))
        metadata = obj["metadata"]
        state = metadata["uid"], int(metadata["resourceVersion"])
        if known is not None and (known.uid, known.version) == state and not known.crowded:
            return known
        kept = _Entry.of(obj)
        with self._lock:
            return self._fitted(key, kept, known)

    def _set(self, key: Key, object_id: ObjectId, listed: _Entry, meanwhile: _ConcurrentChanges) -> bool:
        """Stores the state in a listing, or a concurrent newer one.

        Returns whether the store had a newer state than the listing.
        """
        put = meanwhile.put.get((key, object_id))
        kept = _newest(listed, put)
        group = self._objects.setdefault(key, {})
        known = group.get(object_id)
        rolled_back = self._is_gone(listed) or (known is not None and known is not put and known.version > kept.version)
        self._gone.pop(listed.uid, None)
        if known is not None and (known.uid, known.version) == (kept.uid, kept.version) and not known.crowded:
            return rolled_back  # keeps the cached result of `map_kind`
        group[object_id] = kept
        self._lost.get(key, {}).pop(object_id, None)
        for listing in self._listings:
            if listing is not meanwhile:
                listing.put[key, object_id] = _newest(kept, listing.put.get((key, object_id)))
        return rolled_back

    def _forget_lost(self, kind: str, namespace: str | None, meanwhile: _ConcurrentChanges) -> None:
        """Removes the marks that `mark_lost` set for one kind: a listing also contains objects without the label."""
        for key, places in list(self._lost.items()):
            if namespace is not None and _namespace(key) != namespace:
                continue
            if kind == names.KIND and self.model(key) is None:
                del self._lost[key]
            for object_id in [p for p, uid in places.items() if p[0] == kind and uid not in meanwhile.removed]:
                del places[object_id]

    def all_keys(self) -> list[Key]:
        """Returns the keys of all TritonModels, the most recently changed first."""
        with self._lock:
            newest = {key: max(o.version for o in group.values()) for key, group in self._objects.items()}
        return sorted(newest, key=newest.__getitem__, reverse=True)

    def model(self, key: Key) -> Object | None:
        return next(iter(self.of_kind(key, names.KIND)), None)

    def map_kind(self, kind: str, function: Callable[[Object], T]) -> list[tuple[Key, T]]:
        """Returns `function(object)` for every object of this kind.

        Calls it once for each state, so it must be the same function each time. Leaves out objects on which it fails,
        and objects that are too large.
        """
        with self._lock:
            found = [
                (key, o)
                for key, group in self._objects.items()
                for (k, _), o in group.items()
                if k == kind and not o.large
            ]
        for key, kept in found:
            if kept.seen is None:
                try:
                    kept.seen = function(kept.object)
                except Exception:
                    _log.exception("failed to read the %s of %s", kind, key)
                    kept.seen = _UNREADABLE
        return [(key, kept.seen) for key, kept in found if kept.seen is not _UNREADABLE]

    def large(self, key: Key, uid: str) -> list[Large]:
        """Returns the objects of the TritonModel with this uid of which only `brief` is stored, including itself."""
        with self._lock:
            group = self._objects.get(key, {}).items()
            found = [(object_id, o) for object_id, o in group if o.large and uid in (o.uid, o.controller)]
            return [Large(*object_id, o.large, o.crowded) for object_id, o in found if o.large]

    def of_kind(self, key: Key, kind: str) -> list[Object]:
        with self._lock:
            found = [o for (k, _), o in self._objects.get(key, {}).items() if k == kind]
        return [kept.object for kept in found]

    def children(self, key: Key, uid: str) -> list[Object]:
        """Returns the objects whose controller is the TritonModel with this uid."""
        with self._lock:
            found = [o for (k, _), o in self._objects.get(key, {}).items() if k in _MADE and o.controller == uid]
        return [kept.object for kept in found]

    def leftovers(self, key: Key, uid: str = "") -> list[Object]:
        """Returns the objects whose controller is a TritonModel with this name and another uid."""
        with self._lock:
            group = self._objects.get(key, {}).items()
            found = [o for (k, _), o in group if k in _MADE and o.controller not in ("", uid)]
        return [kept.object for kept in found]


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
    name = reference["name"] if reference else labels.get(names.LABEL_MODEL) or labels.get(names.LABEL_INSTANCE)
    return f"{metadata['namespace']}/{name}" if name else None


def _is_old(known: _Entry | None, uid: str, version: int) -> bool:
    """Returns whether `known` is a state of the same object, with this version or a newer one.

    resourceVersions are comparable as numbers, officially since Kubernetes 1.35.
    """
    return known is not None and known.uid == uid and known.version >= version


def _newest(one: _Entry, other: _Entry | None) -> _Entry:
    return one if other is None or one.version >= other.version else other


def _namespace(key: Key) -> str:
    return key.partition("/")[0]


def state(obj: Object) -> str:
    """Identifies a state of an object: uid and resourceVersion."""
    return f"{obj['metadata']['uid']} {obj['metadata'].get('resourceVersion', '')}"


def _uid(obj: Any) -> str:
    try:
        return str(obj["metadata"]["uid"])
    except (KeyError, TypeError):
        return ""


def _described(obj: Any) -> str:
    """namespace/name of a value that may not be an object."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    found = metadata if isinstance(metadata, dict) else {}
    return f"{found.get('namespace', '')}/{found.get('name', '')}"


def _object_id(obj: Object) -> ObjectId:
    return obj["kind"], obj["metadata"]["name"]
