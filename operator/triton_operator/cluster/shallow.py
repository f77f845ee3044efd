"""JSON that is too deep or too large for its readers.

Where a field has no schema, the API server takes ten thousand levels, and 1.5 MiB that become 50 MiB of Python objects.
One such object must not be the end of every listing and watch that it is in.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

LEVELS = 100
"""More than anything has that is meant, and less than any reader's limit: 254 here."""
CUT = "nested too deeply"
MOST_BYTES = 1 << 20
"""Of JSON that is read as a whole."""
_BYTES_A_VALUE = 16
"""That values must have on average. What Kubernetes writes has as many or more; `{},` is 3 bytes that become 72."""
TOO_LARGE = "tooLarge"
"""The key under which an object that is read in outline has its Size. Kubernetes has no such field."""
Path = tuple[str | int, ...]

_OUTLINE = (b'"metadata"', b'"status"')
_MANAGED_FIELDS = b'"managedFields"'
_EMPTY = {b"{": b"{}", b"[": b"[]"}
_CUT = dict.fromkeys(_EMPTY, orjson.dumps(CUT))
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


class Size(NamedTuple):
    """Of JSON. `values`: about as many as it has, and never fewer."""

    bytes: int
    values: int

    def fits(self, most_bytes: int = MOST_BYTES) -> bool:
        """Whether it takes less than some 20 times `most_bytes` as Python objects."""
        return self.bytes <= most_bytes and self.values <= most_values(most_bytes)


def size(text: bytes) -> Size:
    return Size(len(text), sum(map(text.count, (b",", b"{", b"["))))


def most_values(most_bytes: int) -> int:
    """How many values JSON of at most so many bytes may have."""
    return most_bytes // _BYTES_A_VALUE


def loads(data: bytes | str, at: Path = ()) -> Any:
    """As orjson has it; what lies deeper than LEVELS is replaced, where it is too deep for orjson.

    Where it doesn't fit, the Kubernetes object at the path `at` is read in outline: its metadata and status. Its
    managedFields and every other field are empty, and TOO_LARGE is set.
    """
    text = data.encode() if isinstance(data, str) else data
    measured = size(text)
    if measured.fits():
        return _loads(text)
    found = _loads(_replace(text, functools.partial(_is_left_out, len(at)), _EMPTY))
    try:
        functools.reduce(operator.getitem, at, found)[TOO_LARGE] = measured
    except (LookupError, TypeError):
        raise ValueError(f"{len(text)} bytes of JSON that aren't about one object") from None
    return found


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


def _loads(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return orjson.loads(_replace(text, lambda level, _: level == LEVELS + 1, _CUT))


def _is_left_out(depth: int, level: int, key: bytes) -> bool:
    """Whether an outline of the object at `depth` lacks the map or list at `level` under `key`."""
    return (level == depth + 2 and key not in _OUTLINE) or (level == depth + 3 and key == _MANAGED_FIELDS)


def _replace(text: bytes, chosen: Callable[[int, bytes], bool], by: Mapping[bytes, bytes]) -> bytes:
    """`text` with the value of `by` in place of each map and list that is `chosen`, by its level, from 1 on, and the
    string before it, which is its key where it has one."""
    out, kept, level, inside, key = [], 0, 0, 0, b""
    for token in _TOKEN.finditer(text):
        what = token[0]
        if what in (b"{", b"["):
            level += 1
            if not inside and chosen(level, key):
                inside = level
                out.append(text[kept : token.start()] + by[what])
        elif what in (b"}", b"]"):
            if level == inside:
                kept, inside = token.end(), 0
            level -= 1
        else:
            key = what
    return b"".join([*out, text[kept:] if not inside else b""])
