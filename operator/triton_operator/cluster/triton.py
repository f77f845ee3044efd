"""The servers: which models each one has."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tritonclient.http import InferenceServerClient
from tritonclient.utils import InferenceServerException

from ..api import names
from ..status import pods
from ..status.observation import IndexEntry

Object = dict[str, Any]
Index = tuple[IndexEntry, ...]
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
    return tuple(IndexEntry(e["name"], e.get("version", ""), e.get("state", ""), e.get("reason", "")) for e in entries)


@dataclass(frozen=True)
class _Answer:
    server: tuple[int, bool]
    index: Index
    at: float


class Servers:
    """Asks the servers of a TritonModel for their models, and no oftener than something may have changed."""

    def __init__(
        self,
        ask: Callable[[str], Index] = repository_index,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._clock = ask, clock
        self._answers: dict[str, dict[str, _Answer]] = {}

    def indexes(self, key: str, found: Sequence[Object]) -> dict[str, Index]:
        """Pod name → models, for those pods of the TritonModel `key` whose server answers."""
        known, answers = self._answers.get(key, {}), {}
        for pod in found:
            if pods.server_started(pod) and pod["status"].get("podIP"):
                uid = pod["metadata"]["uid"]
                answer = self._fresh(known.get(uid), pod) or self._answer(pod)
                if answer is not None:
                    answers[uid] = answer
        self._answers[key] = answers
        return {p["metadata"]["name"]: a.index for p in found if (a := answers.get(p["metadata"]["uid"]))}

    def forget(self, key: str) -> None:
        self._answers.pop(key, None)

    def _fresh(self, answer: _Answer | None, pod: Object) -> _Answer | None:
        if answer is None or answer.server != _server(pod) or self._clock() - answer.at > FRESH_SECONDS:
            return None
        return answer if all_ready(answer.index) else None

    def _answer(self, pod: Object) -> _Answer | None:
        ip = pod["status"]["podIP"]
        address = f"[{ip}]" if ":" in ip else ip
        try:
            index = self._ask(f"{address}:{names.PORTS['http']}")
        except (OSError, InferenceServerException, ValueError, KeyError, TypeError) as error:
            # A server on its way up or down; one that hangs or answers garbage is told by its missing answer.
            _log.debug("no repository index from %s: %s", pod["metadata"]["name"], error)
            return None
        return _Answer(_server(pod), index, self._clock())


def all_ready(index: Index) -> bool:
    """Whether nothing in the index is still on its way, or has failed."""
    return bool(index) and all(e.state in ("READY", "") or e.reason == "unloaded" for e in index)


def _server(pod: Object) -> tuple[int, bool]:
    """Changes when the server of a pod may have other models than before."""
    return pods.restarts(pod), pods.is_ready(pod)
