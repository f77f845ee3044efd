"""Reads when the memory of a server will reach its limit, from the container that shows its processes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from process_exporter.series import MEMORY_FULL, MEMORY_LIMIT, MEMORY_USED
from triton_operator.api import names
from triton_operator.api.servers import MemoryGrowth, RunningServer

from .counters import lines
from .fetch import FetchError, HttpClient, Limits, fetch
from .polls import PATIENCE_SECONDS, Polls

_SECONDS = 30.0
_LIMITS = Limits(connect_seconds=1.0, total_seconds=PATIENCE_SECONDS, body_bytes=4 << 20)
_LATEST = 253402300800.0
"""The year 10000."""
_NEARLY = 0.9


class Latest:
    """The last answer of one server."""

    def __init__(self, _: None) -> None:
        self._last: MemoryGrowth | None = None

    def add(self, _: float, answer: MemoryGrowth | None) -> None:
        self._last = answer

    def known(self) -> MemoryGrowth | None:
        return self._last


def memory_probes(on_change: Callable[[str], None]) -> Polls[None, MemoryGrowth | None, MemoryGrowth | None]:
    """Returns the polls of the containers that show processes. `on_change`: see `Polls`."""
    return Polls(_SECONDS, growth, Latest, on_change=on_change)


async def growth(client: HttpClient, server: RunningServer, _: None = None) -> MemoryGrowth | None:
    """Returns how the memory of a server grows; None if it doesn't. Raises FetchError."""
    page = await fetch(client, "GET", f"http://{server.host}:{names.PROCESSES_PORT}/metrics", _LIMITS)
    with client.taking_time():
        return parse(page)


def parse(page: bytes) -> MemoryGrowth | None:
    """Returns the same from a page, which may be another's. Raises FetchError."""
    found = {line.metric: line.value for line in lines(page, (MEMORY_FULL, MEMORY_LIMIT, MEMORY_USED))}
    if MEMORY_FULL not in found:
        return None
    full, limit = found[MEMORY_FULL], found.get(MEMORY_LIMIT, 0.0)
    if not 0 <= full < _LATEST:
        raise FetchError(f"not a time: {MEMORY_FULL} is {full}"[:300])
    return MemoryGrowth(datetime.fromtimestamp(full, UTC), 0 < _NEARLY * limit <= found.get(MEMORY_USED, 0.0))
