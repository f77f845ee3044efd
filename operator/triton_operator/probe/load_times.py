"""Reads how long a server took to load its models."""

from __future__ import annotations

import math

from triton_operator.api.servers import LoadTimes

from .counters import lines
from .fetch import HttpClient, Limits, fetch

LIMITS = Limits(connect_seconds=1.0, total_seconds=1.5, body_bytes=4 << 20)
_METRIC = "nv_model_load_duration_secs"
_SINCE = (2, 52)
"""The first server with this metric: release 24.11."""
_MAX_MODELS = 100
"""As many as the status lists."""
_MAX_NAME, _MAX_SECONDS = 256, 1e5


def has_load_times(version: str) -> bool:
    """Returns whether servers with this version of Triton, e.g. 2.51.0, measure it."""
    return tuple(int(part) for part in version.split(".")[:2]) >= _SINCE


async def load_times(client: HttpClient, address: str) -> LoadTimes:
    """Returns how long the last load of each model took, from the metrics at `address` (host:port). Raises FetchError.

    Of more than 100 models, returns the slowest.
    """
    page = await fetch(client, "GET", f"http://{address}/metrics", LIMITS)
    with client.taking_time():
        return parse(page)


def parse(page: bytes) -> LoadTimes:
    """Returns the same from a page, which may not be Triton's. Raises FetchError."""
    found = {
        (line.labels.get("model", "")[:_MAX_NAME], line.labels.get("version", "")[:_MAX_NAME]): line.value
        for line in lines(page, (_METRIC,))
        if math.isfinite(line.value) and 0 <= line.value < _MAX_SECONDS
    }
    return dict(sorted(found.items(), key=lambda item: -item[1])[:_MAX_MODELS])
