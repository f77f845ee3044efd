"""The memory of the stored objects."""

from __future__ import annotations

from collections.abc import Mapping

from triton_operator.shares import Shares

from .entry import Entry
from .objects import Key, ObjectId, namespace_of


class Budget:
    """Counts the memory of each namespace's objects. Not thread-safe.

    All objects together take about `room` bytes, and never more than twice that. When they take more than `room`, only
    the outline of a new object fits in the namespaces that use the most memory.
    """

    def __init__(self, room: int) -> None:
        self._room, self._shares = room, Shares(room)

    def fit(self, key: Key, entry: Entry, last: Entry | None) -> Entry:
        """Returns the state to store in place of `last`: `entry`, or its outline if the namespace has no room."""
        self.give_back(key, last)
        grows = last is None or last.crowded or entry.memory > last.memory
        if grows and not self._shares.may_take(namespace_of(key), entry.memory):
            entry = entry.in_outline()
        self.charge(key, entry)
        return entry

    def charge(self, key: Key, entry: Entry | None) -> None:
        if entry is not None:
            self._shares.take(namespace_of(key), entry.memory)

    def give_back(self, key: Key, entry: Entry | None) -> None:
        if entry is not None:
            self._shares.give_back(namespace_of(key), entry.memory)

    def recount(self, objects: Mapping[Key, Mapping[ObjectId, Entry]]) -> None:
        """Counts the memory again, without states that a listing has read but not stored."""
        self._shares = Shares(self._room)
        for key, group in objects.items():
            for entry in group.values():
                self.charge(key, entry)

    @property
    def taken(self) -> int:
        """Bytes of all objects."""
        return self._shares.taken
