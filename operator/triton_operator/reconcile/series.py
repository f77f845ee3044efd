"""Decides which series Prometheus keeps of each TritonModel, within a budget for each namespace."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from triton_operator.api.servers import Index
from triton_operator.api.status import TOO_MANY_SERIES, TritonModelStatus
from triton_operator.api.types import TritonModel
from triton_operator.render import Choices, series
from triton_operator.render.pod_monitor import monitored
from triton_operator.render.series import Pair
from triton_operator.status.observation import Listed
from triton_operator.status.series import REMEMBERED, choose, fair_share, known

_PAUSE = timedelta(seconds=30)
"""Minimum time between two changes of the list. Prometheus loads its configuration again after each."""
_UNLIMITED = 1 << 30
_AGAIN_SECONDS = 60.0
"""Requeue delay in seconds, to see whether other TritonModels have made room."""


@dataclass
class _Memory:
    seen: dict[Pair, datetime]
    changed: datetime | None
    most: int = 0
    most_at: datetime | None = None


@dataclass
class _Namespace:
    wants: dict[str, int] = field(default_factory=dict)
    granted: dict[str, int] = field(default_factory=dict)


class SeriesBudget:
    """Shares `total` samples, of one scrape of all servers, between the TritonModels of each namespace.

    It knows only the TritonModels that this process has reconciled. A list from before the start doesn't grow in the
    first 30 s, until all are known. Safe to use from several threads, with one thread at a time for each key.
    """

    def __init__(self, total: int, clock: Callable[[], datetime]) -> None:
        self._total, self._clock, self._lock = total, clock, threading.Lock()
        self._namespaces: defaultdict[str, _Namespace] = defaultdict(_Namespace)
        self._memories: dict[str, _Memory] = {}

    def choose(
        self,
        model: TritonModel,
        choices: Choices,
        before: TritonModelStatus,
        indexes: Mapping[str, Index],
        monitor: Mapping[str, Any] | None,
    ) -> Listed:
        """Returns what the PodMonitor lists. `monitor`: the live one.

        The models are those of `indexes`, and of the last status, which is known before a server answers.
        """
        if not monitored(model, choices):
            self.forget(model.key)
            return Listed(())
        now, live = self._clock(), series.listed(monitor)
        found = known([*before.models, *(entry for index in indexes.values() for entry in index)])
        entrypoint = choices.entrypoint or model.spec.entrypoint or before.entrypoint
        memory = self._memories.setdefault(model.key, _Memory(dict.fromkeys(live or [], now), now if live else None))
        wait = memory.changed + _PAUSE - now if memory.changed else timedelta()
        paused = timedelta() < wait <= _PAUSE
        wanted = len(choose(memory.seen, found, entrypoint, _UNLIMITED, now))
        chosen = choose(memory.seen, found, entrypoint, self._room(model, memory, wanted, paused, now), now)
        if paused:
            chosen = {pair: at for pair, at in chosen.items() if pair in memory.seen}
        missing = len(set(found) - chosen.keys())
        again = _AGAIN_SECONDS if missing and self._is_owed(model) else None
        if paused and missing:
            again = wait.total_seconds()
            # Until the pause is over, the status keeps saying whether they fit.
            missing = missing if any(c.reason == TOO_MANY_SERIES for c in before.conditions) else 0
        if chosen.keys() != memory.seen.keys():
            # The first list is made before a server has answered, and the second one comes at once.
            memory.changed = now if found else None
        memory.seen = chosen
        return Listed(tuple(sorted(chosen)), missing, again)

    def forget(self, key: str) -> None:
        """Gives back the share of a deleted TritonModel, or of one that isn't monitored."""
        self._memories.pop(key, None)
        namespace = key.partition("/")[0]
        with self._lock:
            if found := self._namespaces.get(namespace):
                found.wants.pop(key, None)
                found.granted.pop(key, None)
                if not found.wants:
                    del self._namespaces[namespace]

    def _room(self, model: TritonModel, memory: _Memory, pairs: int, paused: bool, now: datetime) -> int:
        """Returns how many versions `model` may list. Counts the most that it wanted lately: servers may alternate."""
        if pairs >= memory.most or memory.most_at is None or now - memory.most_at > REMEMBERED:
            memory.most, memory.most_at = pairs, now
        servers = series.servers(model)
        wanted, used, least = (
            servers * series.samples(model, max(number, series.LEAST)) for number in (memory.most, len(memory.seen), 0)
        )
        with self._lock:
            found = self._namespaces[model.namespace]
            found.wants[model.key] = wanted
            fair = fair_share(self._total, found.wants, model.key)
            free = self._total - sum(size for key, size in found.granted.items() if key != model.key)
            # A TritonModel keeps what it has, up to its share. It takes more only if others don't have it.
            granted = max(least, min(fair, used if paused else max(free, used)))
            found.granted[model.key] = granted
        return series.room(model, granted // servers)

    def _is_owed(self, model: TritonModel) -> bool:
        """Returns whether others still have some of the share of `model`."""
        with self._lock:
            found = self._namespaces[model.namespace]
            return found.granted[model.key] < fair_share(self._total, found.wants, model.key)
