"""The servers: which models each one has."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tritonclient.http import InferenceServerClient
from tritonclient.utils import InferenceServerException

from triton_operator.api.servers import Index, IndexEntry, Server

_log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 2.0
FRESH_SECONDS = 55.0
"""How long the answer of a server that has all its models is taken as still true."""


def repository_index(address: str) -> Index:
    """The models of the server at `address` (host:port), as its repository index lists them.

    Raises OSError or InferenceServerException where it doesn't answer.
    """
    client = InferenceServerClient(address, connection_timeout=TIMEOUT_SECONDS, network_timeout=TIMEOUT_SECONDS)
    try:
        entries = client.get_model_repository_index()
    finally:
        client.close()
    return tuple(_entry(e) for e in entries)


def _entry(entry: Any) -> IndexEntry:
    """One line of an answer that need not be Triton's. Raises TypeError, KeyError or ValueError where it isn't."""
    fields = [entry["name"], *(entry.get(k, "") for k in ("version", "state", "reason"))]
    if not all(isinstance(field, str) for field in fields):
        raise TypeError("the repository index has something that is no text")
    # JSON may hold halves of pairs of surrogates, which nothing that is written can.
    return IndexEntry(*(field.encode("utf-8", "replace").decode() for field in fields))


@dataclass(frozen=True)
class _Answer:
    epoch: tuple[int, bool]
    index: Index
    at: float


class Servers:
    """Asks the servers of a TritonModel for their models, and no oftener than something may have changed."""

    def __init__(
        self, ask: Callable[[str], Index] = repository_index, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask, self._clock = ask, clock
        self._answers: dict[str, dict[str, _Answer]] = {}

    def indexes(self, key: str, servers: Iterable[Server]) -> dict[str, Index]:
        """Pod name → models, for those servers of the TritonModel `key` that answer."""
        known, answers, found = self._answers.get(key, {}), {}, {}
        for server in servers:
            answer = self._fresh(known.get(server.uid), server) or self._answer(server)
            if answer is not None:
                answers[server.uid], found[server.pod] = answer, answer.index
        self._answers[key] = answers
        return found

    def forget(self, key: str) -> None:
        self._answers.pop(key, None)

    def _fresh(self, answer: _Answer | None, server: Server) -> _Answer | None:
        if answer is None or answer.epoch != server.epoch or self._clock() - answer.at > FRESH_SECONDS:
            return None
        return answer if all_ready(answer.index) else None

    def _answer(self, server: Server) -> _Answer | None:
        try:
            index = self._ask(server.address)
        except (
            OSError,
            InferenceServerException,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            # On its way up or down; one that hangs or answers garbage is told by its missing answer.
            _log.debug("no repository index from %s: %s", server.pod, error)
            return None
        return _Answer(server.epoch, index, self._clock())


def all_ready(index: Index) -> bool:
    """Whether nothing in the index is still on its way, or has failed."""
    return bool(index) and all(e.state == "READY" or not e.counts for e in index)
