"""Polls the request counters of the tracked servers every two seconds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from triton_operator.api.servers import History, ServerCounters, Subject

from .counters import counters
from .fetch import HttpClient
from .polls import Polls
from .samples import Samples

POLL_SECONDS = 2.0
HISTORY_SECONDS = 60.0
_MAX_SAMPLES = int(HISTORY_SECONDS / POLL_SECONDS) * 2
Read = Callable[[HttpClient, str, Subject], Awaitable[ServerCounters]]


def load_probes(on_poll: Callable[[str], None], read: Read = counters) -> Polls[Subject, ServerCounters, History]:
    """Returns the polls of the counters. `on_poll`: see `Polls`."""
    return Polls(
        POLL_SECONDS,
        lambda http, server, subject: read(http, server.metrics, subject),
        lambda subject: Samples(subject, HISTORY_SECONDS, _MAX_SAMPLES),
        on_poll,
    )
