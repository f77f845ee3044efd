"""A cache of the servers' answers with a limit on its total size."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from triton_operator.shares import Shares

from .triton import IndexAnswer

TOTAL_BYTES = 16 << 20
"""If all answers together take more, each namespace is limited to its share. The answer of a server with 50 models
takes about 10 KiB."""


@dataclass(slots=True)
class _Entry:
    """An answer, its size in bytes, and the number of servers of the TritonModel that give it."""

    answer: IndexAnswer
    size: int
    servers: int = 0


class AnswerCache:
    """The answers of servers by TritonModel. Equal answers of one TritonModel are stored once. Not thread-safe."""

    def __init__(self, total: int = TOTAL_BYTES) -> None:
        self._shares = Shares(total)
        self._entries: dict[str, dict[IndexAnswer, _Entry]] = {}

    def add(self, key: str, answer: IndexAnswer) -> IndexAnswer | None:
        """Adds the answer of one server of the TritonModel `key`.

        Returns the stored answer, which stays until `release`; None if the namespace has no room.
        """
        entries = self._entries.get(key, {})
        entry = entries.get(answer)
        if entry is None:
            entry = _Entry(answer, size_of(answer))
            if not self._shares.may_take(_namespace(key), entry.size):
                return None
            self._shares.take(_namespace(key), entry.size)
            self._entries.setdefault(key, entries)[answer] = entry
        entry.servers += 1
        return entry.answer

    def release(self, key: str, answer: IndexAnswer) -> None:
        """Removes the answer of one server. The last server frees the memory."""
        entries = self._entries[key]
        entry = entries[answer]
        entry.servers -= 1
        if not entry.servers:
            self._shares.give_back(_namespace(key), entry.size)
            del entries[answer]
        if not entries:
            del self._entries[key]


def size_of(answer: IndexAnswer) -> int:
    """Returns the memory that an answer takes, in bytes."""
    entries = (*answer.index, *answer.unloaded)
    size = sum(sys.getsizeof(entry) for entry in entries)
    texts = {text for entry in entries for text in (entry.name, entry.version, entry.state, entry.reason)}
    return sys.getsizeof(answer.index) + sys.getsizeof(answer.unloaded) + size + sum(map(sys.getsizeof, texts))


def _namespace(key: str) -> str:
    return key.partition("/")[0]
