"""Objects that are deleted, or that no watch reports any more."""

from __future__ import annotations

from collections.abc import Callable, Collection

from triton_operator.api import names

from .entry import Entry
from .objects import Key, ObjectId, namespace_of

_REMEMBERED = 10_000
"""Number of deleted objects that are remembered. More than can be deleted while a request is in flight."""


class Deletions:
    """The last deleted objects. Not thread-safe."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}

    def record(self, uid: str, version: int) -> None:
        """Remembers that the object with this uid was deleted in this version."""
        self._versions[uid] = version
        if len(self._versions) > _REMEMBERED:
            del self._versions[next(iter(self._versions))]

    def are_after(self, entry: Entry) -> bool:
        """Returns whether the object was deleted after this state.

        The answer to a write can arrive after the event of the deletion. An object that has only lost its label has
        this state or a newer one.
        """
        return entry.version < self._versions.get(entry.uid, 0)

    def forget(self, uid: str) -> None:
        self._versions.pop(uid, None)


class LostObjects:
    """Objects that may still exist without the label by which they are watched. Not thread-safe."""

    def __init__(self) -> None:
        self._uids: dict[Key, dict[ObjectId, str]] = {}

    def of(self, key: Key) -> set[ObjectId]:
        return set(self._uids.get(key, ()))

    def add(self, key: Key, object_id: ObjectId, uid: str) -> None:
        self._uids.setdefault(key, {})[object_id] = uid

    def remove(self, key: Key, object_id: ObjectId) -> None:
        self._uids.get(key, {}).pop(object_id, None)

    def forget(self, key: Key) -> None:
        self._uids.pop(key, None)

    def forget_listed(
        self, kind: str, namespace: str | None, removed: Collection[str], is_model: Callable[[Key], bool]
    ) -> None:
        """Removes the objects of one kind after a listing, which also contains objects without the label.

        `removed`: uids of objects that were removed while it was read. `is_model`: whether a TritonModel still exists.
        """
        for key, uids in list(self._uids.items()):
            if namespace is not None and namespace_of(key) != namespace:
                continue
            if kind == names.KIND and not is_model(key):
                del self._uids[key]
            for object_id in [o for o, uid in uids.items() if o[0] == kind and uid not in removed]:
                del uids[object_id]
