"""Asks a server whether it runs a model on the CPU."""

from __future__ import annotations

from urllib.parse import quote

import orjson

from .fetch import FetchError, HttpClient, Limits, fetch

LIMITS = Limits(connect_seconds=1.0, total_seconds=1.5, body_bytes=1 << 20)


async def runs_on_cpu(client: HttpClient, address: str, model: str) -> bool:
    """Returns whether the server at `address` (host:port) runs all instances on the CPU. Raises FetchError."""
    body = await fetch(client, "GET", f"http://{address}/v2/models/{quote(model, safe='')}/config", LIMITS)
    with client.taking_time():
        return parse(body)


def parse(body: bytes) -> bool:
    """Returns the same from a model's configuration, in which Triton has replaced KIND_AUTO. Raises FetchError."""
    try:
        kinds = {group["kind"] for group in orjson.loads(body)["instance_group"]}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise FetchError("not Triton's configuration of a model") from None
    return kinds == {"KIND_CPU"}
