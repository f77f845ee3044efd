"""Finds models that answer requests without Triton counting them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import orjson

from triton_operator.api.servers import Uncounted

from .fetch import FetchError, HttpClient, Limits, fetch

LIMITS = Limits(connect_seconds=1.0, total_seconds=1.5, body_bytes=1 << 20)
_MIN_REQUESTS = 50
"""Requests of an ensemble, of which at least one should have reached each step."""
_MAX_MODELS, _MAX_NAME = 20, 256


async def uncounted(client: HttpClient, address: str, entrypoint: str) -> Uncounted:
    """Returns the uncounted models among the entry model and its steps, at `address` (host:port). Raises FetchError."""
    body = await fetch(client, "GET", f"http://{address}/v2/models/stats", LIMITS)
    with client.taking_time():
        counts = parse(body)
    if all(counts.values()) or entrypoint not in counts:
        return ()
    body = await fetch(client, "GET", f"http://{address}/v2/models/{quote(entrypoint, safe='')}/config", LIMITS)
    try:
        return find(entrypoint, counts, orjson.loads(body))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise FetchError("the model's configuration can't be read") from None


def parse(body: bytes) -> dict[str, int]:
    """Returns the answered requests of each model, of all its versions. Raises FetchError."""
    counts: dict[str, int] = {}
    try:
        for entry in orjson.loads(body)["model_stats"]:
            stats = entry["inference_stats"]
            number = int(stats["success"]["count"]) + int(stats["fail"]["count"])
            counts[str(entry["name"])] = counts.get(str(entry["name"]), 0) + number
    except (ValueError, TypeError, KeyError, AttributeError):
        raise FetchError("not Triton's statistics") from None
    return counts


def find(entrypoint: str, counts: Mapping[str, int], config: Any) -> Uncounted:
    """Returns the models that have answered, although their count is 0, with the evidence.

    - `counts`: answered requests of each loaded model.
    - `config`: the entry model's configuration.

    Triton counts a warm-up as the backend does. A model is only ready after its warm-up has succeeded.
    """
    if config.get("model_warmup") and not counts[entrypoint]:
        return ((entrypoint, "its warm-up isn't counted"),)
    steps = (config.get("ensemble_scheduling") or {}).get("step", [])
    cached = (config.get("response_cache") or {}).get("enable", False)
    if cached or counts[entrypoint] < _MIN_REQUESTS:
        return ()
    names = sorted({str(step["model_name"])[:_MAX_NAME] for step in steps if counts.get(step["model_name"]) == 0})
    return tuple((name, f"requests of the ensemble {entrypoint} are counted") for name in names[:_MAX_MODELS])
