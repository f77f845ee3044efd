"""The newest state of each object, also while listings are read. No I/O and no lock."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from .absent import Deletions, LostObjects
from .budget import Budget
from .entry import Entry
from .objects import Key, ObjectId, namespace_of

MAX_ENDED = 20
"""Number of ended pods of one TritonModel that are stored: the newest ones, for the status. Each evicted server leaves
one, Kubernetes keeps up to 12,500 in the cluster, and each reconcile reads all that are stored."""
Listed = Mapping[tuple[Key, ObjectId], Entry]


@dataclass(eq=False)
class OpenListing:
    """A listing that is being read, and the changes meanwhile, which it may not contain.

    - `kind`, `namespace`: what it lists; None for all namespaces.
    - `put`: the newest state of each object that was stored meanwhile.
    - `removed`: the uids of the objects that were removed meanwhile.
    """

    kind: str
    namespace: str | None
    put: dict[tuple[Key, ObjectId], Entry] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)


class Table:
    """The newest state of each object by the TritonModel that it belongs to. Not thread-safe.

    `room`: see Budget. `lost`: the objects that may still exist without their label.
    """

    def __init__(self, room: int) -> None:
        self.lost = LostObjects()
        self._budget, self._deletions = Budget(room), Deletions()
        self._groups: dict[Key, dict[ObjectId, Entry]] = {}
        self._listings: list[OpenListing] = []

    def group(self, key: Key) -> Mapping[ObjectId, Entry]:
        """Returns the states of the objects of one TritonModel."""
        return self._groups.get(key, {})

    def groups(self) -> Iterator[tuple[Key, Mapping[ObjectId, Entry]]]:
        """Yields the key and the states of each TritonModel."""
        yield from self._groups.items()

    def knows(self, key: Key, object_id: ObjectId, uid: str, version: int) -> bool:
        """Returns whether `take` would ignore a state with this version."""
        last = self.group(key).get(object_id)
        return _is_old(last, uid, version) and not (self._listings and last and last.version > version)

    def take(self, key: Key, object_id: ObjectId, entry: Entry) -> bool:
        """Stores a state if it is newer than the stored one; returns whether that has changed anything."""
        group = self._groups.setdefault(key, {})
        last = group.get(object_id)
        entry = self._budget.fit(key, entry, last)
        if not self._deletions.are_after(entry):
            for listing in self._listings:
                listing.put[key, object_id] = _newest(entry, listing.put.get((key, object_id)))
        if _is_old(last, entry.uid, entry.version) or self._deletions.are_after(entry):
            self._budget.give_back(key, entry)
            self._budget.charge(key, last)
            if not group:
                del self._groups[key]
            return False
        group[object_id] = entry
        self.lost.remove(key, object_id)
        if entry.ended:
            self._drop_ended(key, group)
        return last is None or last.body != entry.body

    def remove(self, key: Key, object_id: ObjectId, uid: str, version: int) -> None:
        """Forgets a deleted object. `version`: that of its deletion."""
        for listing in self._listings:
            listing.removed.add(uid)
        self._deletions.record(uid, version)
        group = self._groups.get(key, {})
        last = group.get(object_id)
        # A new object with the same name may be stored already.
        if last is not None and last.uid == uid:
            self._budget.give_back(key, group.pop(object_id))
        if not group:
            self._groups.pop(key, None)

    @property
    def memory(self) -> int:
        """Bytes that the objects take."""
        return self._budget.taken

    def begin(self, kind: str, namespace: str | None) -> OpenListing:
        """Begins a listing."""
        listing = OpenListing(kind, namespace)
        self._listings.append(listing)
        return listing

    def fit(self, key: Key, object_id: ObjectId, entry: Entry) -> Entry:
        """Returns the state of a listing to store: `entry`, or its outline if the namespace has no room for it."""
        return self._budget.fit(key, entry, self.group(key).get(object_id))

    def replace(self, listing: OpenListing, entries: Listed, unreadable: Collection[str]) -> bool:
        """Stores a complete list; objects of its kind that aren't in it are forgotten.

        `unreadable`: uids of listed objects whose last state stays. Returns whether an object has an older state in the
        list than before.
        """
        for key, group in list(self._groups.items()):
            if listing.namespace is not None and namespace_of(key) != listing.namespace:
                continue
            for object_id in [o for o in group if o[0] == listing.kind and (key, o) not in entries]:
                entry = group[object_id]
                if listing.put.get((key, object_id)) is not entry and entry.uid not in unreadable:
                    del group[object_id]
            if not group:
                del self._groups[key]
        rolled_back = [
            self._set(key, object_id, entry, listing)
            for (key, object_id), entry in entries.items()
            if entry.uid not in listing.removed
        ]
        for key in {key for (key, _), entry in entries.items() if entry.ended}:
            self._drop_ended(key, self._groups.get(key, {}))
        return any(rolled_back)

    def end(self, listing: OpenListing) -> None:
        """Ends a listing, whether or not it was complete."""
        self._listings.remove(listing)
        self._budget.recount(self._groups)

    def _set(self, key: Key, object_id: ObjectId, entry: Entry, listing: OpenListing) -> bool:
        """Stores the state in a listing, or a concurrent newer one.

        Returns whether the table had a newer state than the listing.
        """
        change = listing.put.get((key, object_id))
        newest = _newest(entry, change)
        group = self._groups.setdefault(key, {})
        last = group.get(object_id)
        is_newer = last is not None and last is not change and last.version > newest.version
        rolled_back = self._deletions.are_after(entry) or is_newer
        self._deletions.forget(entry.uid)
        if last is not None and (last.uid, last.version) == (newest.uid, newest.version) and not last.crowded:
            return rolled_back  # keeps the cached result of `Store.map_kind`
        group[object_id] = newest
        self.lost.remove(key, object_id)
        for other in self._listings:
            if other is not listing:
                other.put[key, object_id] = _newest(newest, other.put.get((key, object_id)))
        return rolled_back

    def _drop_ended(self, key: Key, group: dict[ObjectId, Entry]) -> None:
        """Drops all but the newest ended pods of one TritonModel."""
        pods = sorted((entry.version, object_id) for object_id, entry in group.items() if entry.ended)
        for _, object_id in pods[:-MAX_ENDED]:
            self._budget.give_back(key, group.pop(object_id))


def _is_old(last: Entry | None, uid: str, version: int) -> bool:
    """Returns whether `last` is a state of the same object, with this version or a newer one.

    resourceVersions are comparable as numbers, officially since Kubernetes 1.35.
    """
    return last is not None and last.uid == uid and last.version >= version


def _newest(entry: Entry, other: Entry | None) -> Entry:
    return entry if other is None or entry.version >= other.version else other
