"""The answers of servers that are kept, within one bound for all of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from triton_operator.shares import Shares

from .triton import Answer

TOTAL_BYTES = 16 << 20
"""Of all answers, as Python objects, before namespaces are held to their share. 50 models take some 10 KiB."""


@dataclass(slots=True)
class _Kept:
    """An answer, its size in bytes, and how many servers of the TritonModel give it."""

    answer: Answer
    size: int
    servers: int = 0


class KeptAnswers:
    """Answers by the TritonModel whose servers give them, each once. Not thread-safe."""

    def __init__(self, total: int = TOTAL_BYTES) -> None:
        self._shares = Shares(total)
        self._kept: dict[str, dict[Answer, _Kept]] = {}

    def keep(self, key: str, answer: Answer) -> Answer | None:
        """The answer to refer to, until `release`; None where the namespace of the TritonModel `key` has no room."""
        of_one = self._kept.get(key, {})
        kept = of_one.get(answer)
        if kept is None:
            kept = _Kept(answer, size_of(answer))
            if not self._shares.may_take(_namespace(key), kept.size):
                return None
            self._shares.take(_namespace(key), kept.size)
            self._kept.setdefault(key, of_one)[answer] = kept
        kept.servers += 1
        return kept.answer

    def release(self, key: str, answer: Answer) -> None:
        """One server less gives an answer that was kept."""
        of_one = self._kept[key]
        kept = of_one[answer]
        kept.servers -= 1
        if not kept.servers:
            self._shares.give_back(_namespace(key), kept.size)
            del of_one[answer]
        if not of_one:
            del self._kept[key]


def size_of(answer: Answer) -> int:
    """Bytes of memory that an answer takes."""
    entries = sum(sys.getsizeof(entry) for entry in answer.index)
    texts = {text for e in answer.index for text in (e.name, e.version, e.state, e.reason)}
    return sys.getsizeof(answer.index) + entries + sum(map(sys.getsizeof, texts))


def _namespace(key: str) -> str:
    return key.partition("/")[0]
