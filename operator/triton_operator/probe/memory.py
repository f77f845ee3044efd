"""Reads when the memory of a server will reach its limit, from the container that shows its processes."""

from __future__ import annotations

from collections.abc import Callable

from process_exporter.series import MEMORY_FULL
from triton_operator.api import names
from triton_operator.api.servers import RunningServer

from .counters import lines
from .fetch import FetchError, HttpClient, Limits, fetch
from .polls import PATIENCE_SECONDS, Polls

_SECONDS = 30.0
_LIMITS = Limits(connect_seconds=1.0, total_seconds=PATIENCE_SECONDS, body_bytes=4 << 20)
_LATEST = 253402300800.0
"""The year 10000."""


class Latest:
    """The last answer of one server."""

    def __init__(self, _: None) -> None:
        self._last: float | None = None

    def add(self, _: float, answer: float | None) -> None:
        self._last = answer

    def known(self) -> float | None:
        return self._last


def memory_probes(on_change: Callable[[str], None]) -> Polls[None, float | None, float | None]:
    """Returns the polls of the containers that show processes. `on_change`: see `Polls`."""
    return Polls(_SECONDS, full_time, Latest, on_change=on_change)


async def full_time(client: HttpClient, server: RunningServer, _: None = None) -> float | None:
    """Returns when the memory of a server will reach its limit, in seconds since 1970; None if it doesn't grow.

    Raises FetchError.
    """
    page = await fetch(client, "GET", f"http://{server.host}:{names.PROCESSES_PORT}/metrics", _LIMITS)
    with client.taking_time():
        return parse(page)


def parse(page: bytes) -> float | None:
    """Returns the same from a page, which may be another's. Raises FetchError."""
    found = [line.value for line in lines(page, (MEMORY_FULL,))]
    if not found:
        return None
    if not 0 <= found[0] < _LATEST:
        raise FetchError(f"not a time: {MEMORY_FULL} is {found[0]}"[:300])
    return found[0]
