"""Reads what a Triton server says of itself: its models and their states, and its version."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from triton_operator.api.servers import UNLOADED, Index, IndexEntry

from .fetch import HttpClient, Limits, UnusableError, fetch

LIMITS = Limits()
MAX_ENTRIES = 2000
_MAX_NAME, _MAX_REASON = 256, 4096
"""Characters. The name of a model is the name of a directory, and Triton's reasons are sentences."""
_IMPORT_FRAMES = re.compile(r"\n {0,8}<frozen [\w.]+>\(\d+\): \w+")
"""Python's own frames of an import, in the traceback of a model.py. The pattern takes linear time on any text."""
READY, LOADING = "READY", "LOADING"
_VERSION = re.compile(r"\d{1,4}(\.\d{1,4}){1,3}[-+.\w]{0,20}")


@dataclass(frozen=True, slots=True)
class IndexAnswer:
    """The answer of a server about its models.

    - `index`: the models that should be loaded.
    - `all_ready`: whether the server lists a model, and all models in `index` are READY.
    - `unloaded`: the models that a client or the operator has unloaded.
    """

    index: Index
    all_ready: bool
    unloaded: Index = ()


async def repository_index(client: HttpClient, address: str) -> IndexAnswer:
    """Returns the models in the repository index of the server at `address` (host:port). Raises FetchError."""
    body = await fetch(client, "POST", f"http://{address}/v2/repository/index", LIMITS)
    with client.taking_time():
        return parse(body)


async def server_version(client: HttpClient, address: str) -> str:
    """Returns the version of the server at `address` (host:port), e.g. 2.51.0. Raises FetchError."""
    body = await fetch(client, "GET", f"http://{address}/v2", LIMITS)
    try:
        version = orjson.loads(body)["version"]
        if _VERSION.fullmatch(version):
            return str(version)
    except (ValueError, TypeError, KeyError):
        pass
    raise UnusableError("has no version of Triton")


def parse(body: bytes) -> IndexAnswer:
    """Parses an answer, which may not come from Triton.

    Raises UnusableError, whose message contains no text from the answer.
    """
    try:
        items = orjson.loads(body)
    except ValueError:
        raise UnusableError("isn't JSON") from None
    if not isinstance(items, list):
        raise UnusableError("isn't a list")
    # Most entries have the same version and state. Each text is stored once.
    texts: dict[str, str] = {}
    entries = [_entry(item, lambda text: texts.setdefault(text, text)) for item in items]
    index = tuple(entry for entry in entries if _counts(entry))
    unloaded = tuple(entry for entry in entries if entry.reason == UNLOADED)[:MAX_ENTRIES]
    if len(index) > MAX_ENTRIES:
        raise UnusableError(f"lists more than {MAX_ENTRIES} models that should be loaded")
    return IndexAnswer(index, bool(items) and all(entry.state == READY for entry in index), unloaded)


def _entry(entry: Any, store: Callable[[str], str]) -> IndexEntry:
    try:
        fields = [entry["name"], *(entry.get(key, "") for key in ("version", "state", "reason"))]
    except (TypeError, KeyError, AttributeError):
        raise UnusableError("has an entry without a name") from None
    if not all(isinstance(field, str) for field in fields):
        raise UnusableError("has an entry with a field that isn't a string")
    name, version, state, reason = fields
    reason = "" if state == READY else _IMPORT_FRAMES.sub("", reason[:_MAX_REASON]).strip()
    return IndexEntry(store(name[:_MAX_NAME]), store(version[:_MAX_NAME]), store(state[:_MAX_NAME]), store(reason))


def _counts(entry: IndexEntry) -> bool:
    """Returns whether the model should be loaded.

    A model that was never loaded has no state. The reason UNLOADED means that it was unloaded on purpose.
    """
    return bool(entry.state) and entry.reason != UNLOADED
