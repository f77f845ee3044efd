"""JSON that may be nested deeper than anything here can read. The API server takes ten thousand levels, in fields that
have no schema; one object beyond a reader's limit would be the end of every listing and watch that it is in."""

from __future__ import annotations

import re
from typing import Any

import orjson

LEVELS = 100
"""More than anything has that is meant, and less than any reader's limit: 254 here."""
CUT = "nested too deeply"

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def loads(data: bytes | str) -> Any:
    """As orjson has it; what lies deeper than LEVELS is replaced, where it is too deep for orjson."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return orjson.loads(_cut(data.encode() if isinstance(data, str) else data))


def dumps(value: Any) -> bytes:
    """With sorted keys, and without what lies deeper than LEVELS."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return orjson.dumps(shallow(value), option=orjson.OPT_SORT_KEYS)


def shallow(value: Any, levels: int = LEVELS) -> Any:
    """`value` without what lies deeper than `levels`."""
    if not isinstance(value, dict | list):
        return value
    if levels == 0:
        return CUT
    if isinstance(value, dict):
        return {key: shallow(item, levels - 1) for key, item in value.items()}
    return [shallow(item, levels - 1) for item in value]


def _cut(text: bytes) -> bytes:
    out, kept, level = [], 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in (b"{", b"["):
            level += 1
            if level == LEVELS + 1:
                out.append(text[kept : token.start()] + orjson.dumps(CUT))
        elif token[0] in (b"}", b"]"):
            level -= 1
            if level == LEVELS:
                kept = token.end()
    return b"".join([*out, text[kept:]])
