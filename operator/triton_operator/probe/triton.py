"""Triton's repository index: which models a server has, and in which state."""

from __future__ import annotations

from typing import Any

import aiohttp
import orjson

from triton_operator.api.servers import Index, IndexEntry

from .fetch import FetchError, Limits, fetch

LIMITS = Limits()
MAX_ENTRIES = 2000
_MAX_TEXT = 4096
"""Characters of one field. Triton's reasons are sentences; the status keeps fewer."""


async def repository_index(client: aiohttp.ClientSession, address: str) -> Index:
    """The models of the server at `address` (host:port), as its repository index lists them. Raises FetchError."""
    body = await fetch(client, "POST", f"http://{address}/v2/repository/index", LIMITS)
    try:
        entries = orjson.loads(body)
        if not isinstance(entries, list):
            raise TypeError("the repository index is not a list")
        if len(entries) > MAX_ENTRIES:
            raise FetchError(f"the repository index has more than {MAX_ENTRIES} entries")
        return tuple(map(_entry, entries))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FetchError(f"not a repository index: {error}"[:300]) from None


def _entry(entry: Any) -> IndexEntry:
    """One line of an answer that may not be Triton's. Raises TypeError, KeyError or AttributeError."""
    fields = [entry["name"], *(entry.get(key, "") for key in ("version", "state", "reason"))]
    if not all(isinstance(field, str) for field in fields):
        raise TypeError("a field is not a string")
    return IndexEntry(*(field[:_MAX_TEXT] for field in fields))


def all_ready(index: Index) -> bool:
    """Whether no model is loading, unloading or failed."""
    return bool(index) and all(entry.state == "READY" or not entry.counts for entry in index)
