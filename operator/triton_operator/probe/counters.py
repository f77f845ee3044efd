"""Reads the request counters of a Triton server from its metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from triton_operator.api.servers import Counters

from .fetch import FetchError, Limits, fetch

LIMITS = Limits(connect_seconds=1.0, total_seconds=4.0, body_bytes=1 << 20)
"""A server under the load that needs more servers may take seconds for its metrics. The time is shorter than the one
after which a server counts as silent (scaling/demand.py)."""
_MAX_LINES = 2000
_FIELDS = {
    "nv_inference_request_success": "success",
    "nv_inference_request_failure": "failure",
    "nv_inference_pending_request_count": "pending",
}
# Parsing every line of a server with many models would cost more than the request.
_LINE = re.compile(rb"^nv_inference_(?:request_success|request_failure|pending_request_count)\{[^\n]*$", re.MULTILINE)


async def counters(client: aiohttp.ClientSession, address: str, models: Collection[str]) -> Mapping[str, Counters]:
    """Returns the counters of `models` from the metrics at `address` (host:port).

    Sums over versions and failure reasons. A model that the server doesn't report is missing. Raises FetchError.
    """
    body = await fetch(client, "GET", f"http://{address}/metrics", LIMITS)
    lines = [match[0] for match in _LINE.finditer(body)]
    if len(lines) > _MAX_LINES:
        raise FetchError(f"the metrics have more than {_MAX_LINES} request counters")
    try:
        families = list(text_string_to_metric_families(b"\n".join(lines).decode() + "\n"))
    except ValueError as error:
        raise FetchError(f"not Triton's metrics: {error}"[:300]) from None
    sums: dict[str, dict[str, float]] = {}
    for sample in (sample for family in families for sample in family.samples):
        model, value = sample.labels.get("model", ""), float(sample.value)
        if not (math.isfinite(value) and value >= 0):
            raise FetchError(f"not Triton's metrics: {sample.name} is {value}")
        if model in models:
            fields = sums.setdefault(model, dict.fromkeys(_FIELDS.values(), 0.0))
            fields[_FIELDS[sample.name]] += value
    return {model: Counters(**fields) for model, fields in sums.items()}
