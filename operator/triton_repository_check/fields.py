"""Fields of Triton's schema, and strings of protobuf's text format."""

from __future__ import annotations

import re
from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor, FieldDescriptor

_ESCAPE = re.compile(
    rb"\\(?:([abfnrtv\\?'\"])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U(000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4})|)"
)
"""Matches an escape sequence; only the backslash if it is invalid."""
_SIMPLE = {b"a": 7, b"b": 8, b"f": 12, b"n": 10, b"r": 13, b"t": 9, b"v": 11, b"\\": 92, b"?": 63, b"'": 39, b'"': 34}


@dataclass(slots=True)
class Field:
    """A copy of a field's descriptor, because each access to the descriptor takes as long as parsing the field.

    - `maps_messages`: whether it is a map to messages.
    - `inner`: the name of the message that it contains; empty for a scalar.
    - `enum`: names and numbers of an enum's values; empty for other fields.
    """

    name: str
    kind: int
    repeated: bool
    is_map: bool
    maps_messages: bool
    oneof: str
    is_bytes: bool
    inner: str
    enum: dict[str, int]


_KNOWN: dict[str, dict[str, Field]] = {}


def table(descriptor: Descriptor) -> dict[str, Field]:
    """Returns the fields of a message by name."""
    fields = _KNOWN.get(descriptor.full_name)
    if fields is None:
        fields = _KNOWN[descriptor.full_name] = {f.name: _field(f) for f in descriptor.fields}
    return fields


def _field(descriptor: FieldDescriptor) -> Field:
    inner, oneof = descriptor.message_type, descriptor.containing_oneof
    entry = inner if inner is not None and inner.GetOptions().map_entry else None
    return Field(
        descriptor.name,
        descriptor.cpp_type,
        descriptor.is_repeated,
        entry is not None,
        entry is not None and entry.fields_by_name["value"].message_type is not None,
        oneof.name if oneof is not None else "",
        descriptor.type == FieldDescriptor.TYPE_BYTES,
        inner.name if inner is not None else "",
        {v.name: v.number for v in descriptor.enum_type.values} if descriptor.enum_type is not None else {},
    )


class EscapeError(ValueError):
    """A string has an invalid escape sequence. `at` is its offset."""

    def __init__(self, at: int) -> None:
        super().__init__("Invalid escape sequence in string literal")
        self.at = at


def decoded(inner: str) -> bytes:
    """Returns the bytes of a string without its quotes. Raises EscapeError."""
    raw = inner.encode("utf-8", "surrogateescape")
    cache: dict[bytes, bytes] = {}

    def replacement(match: re.Match[bytes]) -> bytes:
        content = cache.get(match[0])
        if content is None:
            if match[0] == b"\\":
                raise EscapeError(len(raw[: match.start()].decode("utf-8", "surrogateescape")))
            content = cache[match[0]] = _escaped(match)
        return content

    return _ESCAPE.sub(replacement, raw) if b"\\" in raw else raw


def _escaped(match: re.Match[bytes]) -> bytes:
    simple, octal, byte, short, long = match.groups()
    if simple:
        return bytes((_SIMPLE[simple],))
    if octal or byte:
        return bytes(((int(octal, 8) if octal else int(byte, 16)) & 0xFF,))
    return chr(int(short or long, 16)).encode("utf-8", "surrogatepass")
