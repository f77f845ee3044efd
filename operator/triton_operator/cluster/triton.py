"""The servers: which models each one has."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any

from triton_operator.api.servers import Index, IndexEntry, Server

_log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 2.0
ANSWER_SECONDS, ANSWER_BYTES = 4.0, 4 << 20
"""For all of an answer: what trickles, or has no end, is none."""
ASKING_SECONDS = 10.0
"""For all servers of a TritonModel: a fleet that hangs must not hold a worker for minutes."""
FRESH_SECONDS = 55.0
"""How long the answer of a server that has all its models is taken as still true."""


def repository_index(address: str) -> Index:
    """The models of the server at `address` (host:port), as its repository index lists them.

    Raises OSError, HTTPException, ValueError, TypeError, KeyError or RecursionError where no Triton answers. Triton's
    own client would read for as long, and as much, as whatever is in the pod likes to send.
    """
    host, _, port = address.rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=TIMEOUT_SECONDS)
    late = threading.Timer(ANSWER_SECONDS, _hang_up, (connection,))
    late.daemon = True
    try:
        connection.connect()
        late.start()
        connection.request("POST", "/v2/repository/index")
        response = connection.getresponse()
        data = response.read(ANSWER_BYTES + 1)
        if response.status != 200 or len(data) > ANSWER_BYTES:
            raise ValueError(f"HTTP {response.status}, {len(data)} bytes")
        return tuple(_entry(e) for e in json.loads(data))
    finally:
        late.cancel()
        connection.close()


def _hang_up(connection: HTTPConnection) -> None:
    """Ends whatever waits for this connection, in whichever thread."""
    with contextlib.suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


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
        self._silent: dict[str, frozenset[str]] = {}

    def indexes(self, key: str, servers: Iterable[Server]) -> dict[str, Index]:
        """Pod name → models, for those servers of the TritonModel `key` that answer."""
        known, answers, found = self._answers.get(key, {}), {}, {}
        before, silent, until = self._silent.get(key, frozenset()), set(), self._clock() + ASKING_SECONDS
        # Those that hung come last, so that they are the ones for which there is no time.
        for server in sorted(servers, key=lambda s: s.uid in before):
            answer, asked = self._fresh(known.get(server.uid), server), self._clock() < until
            if answer is None and asked:
                answer = self._answer(server)
            if answer is not None:
                answers[server.uid], found[server.pod] = answer, answer.index
            elif asked or server.uid in before:
                silent.add(server.uid)
        self._answers[key], self._silent[key] = answers, frozenset(silent)
        return found

    def forget(self, key: str) -> None:
        self._answers.pop(key, None)
        self._silent.pop(key, None)

    def _fresh(self, answer: _Answer | None, server: Server) -> _Answer | None:
        if answer is None or answer.epoch != server.epoch or self._clock() - answer.at > FRESH_SECONDS:
            return None
        return answer if all_ready(answer.index) else None

    def _answer(self, server: Server) -> _Answer | None:
        try:
            index = self._ask(server.address)
        except (
            OSError,
            HTTPException,
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
