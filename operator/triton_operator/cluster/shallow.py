"""Reads JSON that is nested too deeply or too large.

In a field without a schema the API server accepts 10,000 levels, and 1.5 MiB that become 50 MiB of Python objects. One
such object must not break every listing and watch that contains it.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

LEVELS = 100
"""Maximum depth. Meaningful objects are flatter, and the lowest limit of a parser here is 254."""
CUT = "nested too deeply"
MAX_BYTES = 1 << 20
"""Maximum size of JSON that is read as a whole."""
_BYTES_A_VALUE = 16
"""Minimum average size of a value. Kubernetes' own objects have more. `{},` has 3 bytes, which become 72 in memory."""
TOO_LARGE = "tooLarge"
"""The key that holds the Size in an object that was read in outline. Kubernetes has no field with this name."""
Path = tuple[str | int, ...]

_OUTLINE = (b'"metadata"', b'"status"')
_MANAGED_FIELDS = b'"managedFields"'
_EMPTY = {b"{": b"{}", b"[": b"[]"}
_CUT = dict.fromkeys(_EMPTY, orjson.dumps(CUT))
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


class Size(NamedTuple):
    """The size of JSON text. `values`: an upper estimate of the number of values."""

    bytes: int
    values: int

    def fits(self, max_bytes: int = MAX_BYTES) -> bool:
        """Returns whether it takes less than about 20 times `max_bytes` as Python objects."""
        return self.bytes <= max_bytes and self.values <= max_values(max_bytes)


def size(text: bytes) -> Size:
    return Size(len(text), sum(map(text.count, (b",", b"{", b"["))))


def max_values(max_bytes: int) -> int:
    """Returns the maximum number of values that JSON of at most `max_bytes` bytes may have."""
    return max_bytes // _BYTES_A_VALUE


def loads(data: bytes | str, at: Path = ()) -> Any:
    """Parses JSON like orjson. If it is too deep for orjson, replaces everything below LEVELS by CUT.

    If it is too large, reads the Kubernetes object at the path `at` in outline: only its metadata and status. Its
    managedFields and all other fields are empty, and TOO_LARGE is set. Raises ValueError.
    """
    text = data.encode() if isinstance(data, str) else data
    total = size(text)
    if total.fits():
        return _loads(text)
    value = _loads(_replace(text, functools.partial(_is_left_out, len(at)), _EMPTY))
    try:
        functools.reduce(operator.getitem, at, value)[TOO_LARGE] = total
    except (LookupError, TypeError):
        raise ValueError(f"the answer has {len(text)} bytes, but doesn't contain one Kubernetes object") from None
    return value


def dumps(value: Any) -> bytes:
    """Returns JSON with sorted keys. Replaces everything below LEVELS by CUT if it is too deep for orjson."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return orjson.dumps(shallow(value), option=orjson.OPT_SORT_KEYS)


def shallow(value: Any, levels: int = LEVELS) -> Any:
    """Returns `value` with everything below `levels` replaced by CUT."""
    if not isinstance(value, dict | list):
        return value
    if levels == 0:
        return CUT
    if isinstance(value, dict):
        return {key: shallow(item, levels - 1) for key, item in value.items()}
    return [shallow(item, levels - 1) for item in value]


def _loads(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return orjson.loads(_replace(text, lambda level, _: level == LEVELS + 1, _CUT))


def _is_left_out(depth: int, level: int, key: bytes) -> bool:
    """Returns whether an outline of the object at `depth` leaves out the map or list at `level` under `key`."""
    return (level == depth + 2 and key not in _OUTLINE) or (level == depth + 3 and key == _MANAGED_FIELDS)


def _replace(text: bytes, chosen: Callable[[int, bytes], bool], by: Mapping[bytes, bytes]) -> bytes:
    """Replaces each map and list for which `chosen(level, key)` is true by the value of `by`.

    `level` starts at 1. `key` is the last string before the map or list: its key, if it has one.
    """
    out, done, level, inside, key = [], 0, 0, 0, b""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in (b"{", b"["):
            level += 1
            if not inside and chosen(level, key):
                inside = level
                out.append(text[done : match.start()] + by[token])
        elif token in (b"}", b"]"):
            if level == inside:
                done, inside = match.end(), 0
            level -= 1
        else:
            key = token
    return b"".join([*out, text[done:] if not inside else b""])
