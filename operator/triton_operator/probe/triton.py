"""Triton's repository index: which models a server has, and in which state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from triton_operator.api.servers import Index, IndexEntry

from .fetch import Limits, UnusableError, fetch

LIMITS = Limits()
MAX_ENTRIES = 2000
_MAX_NAME, _MAX_REASON = 256, 4096
"""Characters. A model's name is that of a directory, and Triton's reasons are sentences."""
READY = "READY"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server says of its models. `index`: those that it shall have loaded. `settled`: whether it knows any
    model, and all of `index` are READY."""

    index: Index
    settled: bool


async def repository_index(client: aiohttp.ClientSession, address: str) -> Answer:
    """The models of the server at `address` (host:port), as its repository index lists them. Raises FetchError."""
    return parse(await fetch(client, "POST", f"http://{address}/v2/repository/index", LIMITS))


def parse(body: bytes) -> Answer:
    """An answer that may not be Triton's. Raises UnusableError, whose message doesn't repeat what the server says."""
    try:
        listed = orjson.loads(body)
    except ValueError:
        raise UnusableError("is no JSON") from None
    if not isinstance(listed, list):
        raise UnusableError("is no list")
    # Most entries have the same version and state: each text is kept once.
    texts: dict[str, str] = {}
    entries = [_entry(one, lambda text: texts.setdefault(text, text)) for one in listed]
    index = tuple(entry for entry in entries if _counts(entry))
    if len(index) > MAX_ENTRIES:
        raise UnusableError(f"lists more than {MAX_ENTRIES} models to be loaded")
    return Answer(index, bool(listed) and all(entry.state == READY for entry in index))


def _entry(entry: Any, once: Callable[[str], str]) -> IndexEntry:
    try:
        fields = [entry["name"], *(entry.get(key, "") for key in ("version", "state", "reason"))]
    except (TypeError, KeyError, AttributeError):
        raise UnusableError("has an entry without a name") from None
    if not all(isinstance(field, str) for field in fields):
        raise UnusableError("has an entry with a field that is no string")
    name, version, state, reason = fields
    if state == READY:
        reason = ""
    return IndexEntry(
        once(name[:_MAX_NAME]), once(version[:_MAX_NAME]), once(state[:_MAX_NAME]), once(reason[:_MAX_REASON])
    )


def _counts(entry: IndexEntry) -> bool:
    """Whether a model shall be loaded. One that was never asked to load has no state; "unloaded" is Triton's reason for
    one that was taken away on purpose."""
    return bool(entry.state) and entry.reason != "unloaded"
