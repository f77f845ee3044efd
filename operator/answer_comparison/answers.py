"""Compares the answers of two servers to the same request. Pure.

The shapes of Triton's answers: the KServe protocol with the extensions for binary data and for `generate`,
https://github.com/triton-inference-server/server/tree/main/docs/protocol
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import zip_longest
from typing import Any

NEAR = 0.01
"""Numbers are close if they differ by at most this part of the larger one."""
TINY = 0.001
"""Numbers that differ by at most this are close, too."""
_FORMATS = {
    "BOOL": "?", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B", "UINT16": "H", "UINT32": "I",
    "UINT64": "Q", "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip
"""Triton's data types in the letters of `struct`. BF16 and BYTES have none."""
_OF_THE_SERVER = frozenset({"id", "model_name", "model_version"})
"""Fields of an answer of `generate` that aren't outputs."""
_CLASS = re.compile(r"(-?[0-9]+\.[0-9]+):([0-9]+(?::.*)?)", re.DOTALL)
"""A text of Triton's extension for classification: score, index, and perhaps a label."""
_PIECE_BYTES = 64 << 10
_JSON_CHARACTERS = 1 << 20
"""Maximum length of a text that is read as JSON, which takes many times more memory."""
Json = Any


class Likeness(IntEnum):
    """How much two answers have in common, the most first.

    EXACT: everything. CLOSE: numbers with a decimal point differ a little. DIFFERENT: anything else.
    """

    EXACT = 0
    CLOSE = 1
    DIFFERENT = 2


@dataclass(frozen=True)
class Output:
    """An output of an answer.

    - `data`: in the form that the server sent: Triton's binary one, or JSON.
    - `datatype`: Triton's; "" for an answer of `generate`, which doesn't have it.
    """

    data: bytes | Json
    datatype: str = ""
    shape: tuple[int, ...] = ()

    @property
    def is_float(self) -> bool | None:
        """Whether its numbers may be close; None if each says it itself."""
        return self.datatype.startswith(("FP", "BF")) if self.datatype else None


def outputs(body: bytes, header_length: int | None) -> Mapping[str, Output]:
    """Returns the outputs of an answer by their names.

    `header_length`: the number of bytes of JSON, if binary data follow. Raises ValueError if it isn't Triton's.
    """
    end = len(body) if header_length is None else header_length
    try:
        answer = json.loads(body[:end])
        if "outputs" not in answer:
            return {name: Output(value) for name, value in answer.items() if name not in _OF_THE_SERVER}
        return dict(_tensors(answer["outputs"], body[end:]))
    except (AttributeError, KeyError, LookupError, RecursionError, TypeError, ValueError):
        raise ValueError("an answer isn't Triton's") from None


def _tensors(described: Iterable[Mapping[str, Json]], binary: bytes) -> Iterator[tuple[str, Output]]:
    at = 0
    for one in described:
        size = one.get("parameters", {}).get("binary_data_size")
        if size is not None and not 0 <= size <= len(binary) - at:
            raise ValueError("binary data are missing")
        data = one["data"] if size is None else binary[at : at + size]
        yield str(one["name"]), Output(data, str(one["datatype"]), tuple(one["shape"]))
        at += size or 0


def _numbers(data: bytes, datatype: str) -> tuple[Json, ...]:
    """Returns the numbers in Triton's binary form. Raises ValueError or KeyError."""
    if datatype == "BF16":
        # The upper half of an FP32.
        data, datatype = b"".join(b"\0\0" + data[n : n + 2] for n in range(0, len(data), 2)), "FP32"
    form = _FORMATS[datatype]
    try:
        return struct.unpack(f"<{len(data) // struct.calcsize(form)}{form}", data)
    except struct.error as error:
        raise ValueError(str(error)) from None


def _texts(data: bytes) -> Iterator[str]:
    """Yields the elements of a BYTES tensor. Each has its length before it."""
    at = 0
    while at < len(data):
        if at + 4 > len(data):
            raise ValueError("a length is cut off")
        (length,) = struct.unpack_from("<I", data, at)
        # Bytes that are no text are compared like text.
        yield data[at + 4 : at + 4 + length].decode("utf-8", "surrogateescape")
        at += 4 + length


def compare(first: Mapping[str, Output], second: Mapping[str, Output]) -> Mapping[str, Likeness]:
    """Returns how much each output has in common with that of the same name. Raises ValueError."""
    return {name: _of_outputs(first.get(name), second.get(name)) for name in sorted({*first, *second})}


def _of_outputs(first: Output | None, second: Output | None) -> Likeness:
    if first is None or second is None or (first.datatype, first.shape) != (second.datatype, second.shape):
        return Likeness.DIFFERENT
    try:
        if isinstance(first.data, bytes) and isinstance(second.data, bytes):
            pairs = _pairs(first.data, second.data, first.datatype)
            return _worst(_of_values(one, other, first.is_float) for one, other in pairs)
        return _of_values(first.data, second.data, first.is_float)
    except (KeyError, OverflowError, RecursionError, TypeError):
        raise ValueError("an output can't be read") from None


def _pairs(first: bytes, second: bytes, datatype: str) -> Iterator[tuple[Json, Json]]:
    """Yields the values of two tensors that may differ, a few at a time: as objects they take much memory."""
    if datatype == "BYTES":
        yield from zip_longest(_texts(first), _texts(second))
    elif len(first) != len(second):
        yield None, 0
    else:
        for n in range(0, len(first), _PIECE_BYTES):
            one, other = first[n : n + _PIECE_BYTES], second[n : n + _PIECE_BYTES]
            if one != other:
                yield from zip(_numbers(one, datatype), _numbers(other, datatype), strict=True)


def _worst(found: Iterable[Likeness]) -> Likeness:
    worst = Likeness.EXACT
    for one in found:
        if (worst := max(worst, one)) == Likeness.DIFFERENT:
            break
    return worst


def _of_values(first: Json, second: Json, is_float: bool | None) -> Likeness:
    """Returns how much two values of JSON have in common. A text that is JSON is compared as such."""
    match first, second:
        case (bool(), _) | (_, bool()):
            # In Python, True is 1.
            return Likeness.EXACT if first is second else Likeness.DIFFERENT
        case (int() | float(), int() | float()):
            if is_float or (is_float is None and isinstance(first, float) and isinstance(second, float)):
                return _of_numbers(first, second)
        case (list(), list()) if len(first) == len(second):
            return _worst(_of_values(one, other, is_float) for one, other in zip(first, second, strict=True))
        case (dict(), dict()) if first.keys() == second.keys():
            return _worst(_of_values(value, second[key], is_float) for key, value in first.items())
        case (str(), str()) if first != second:
            return _of_texts(first, second)
    return Likeness.EXACT if first == second else Likeness.DIFFERENT


def _of_texts(first: str, second: str) -> Likeness:
    """Returns how much two texts have in common that aren't the same: JSON, or a class of Triton."""
    if (one := _CLASS.fullmatch(first)) and (other := _CLASS.fullmatch(second)) and one[2] == other[2]:
        return _of_numbers(float(one[1]), float(other[1]))
    if not all(text[:1] in ("{", "[") and len(text) <= _JSON_CHARACTERS for text in (first, second)):
        return Likeness.DIFFERENT
    try:
        parsed, parsed_too = json.loads(first), json.loads(second)
    except ValueError:
        return Likeness.DIFFERENT
    # Other spaces or another order of keys are no difference for a client, but one of the text.
    return max(Likeness.CLOSE, _of_values(parsed, parsed_too, None))


def _of_numbers(first: float, second: float) -> Likeness:
    if first == second or (math.isnan(first) and math.isnan(second)):
        return Likeness.EXACT
    if not (math.isfinite(first) and math.isfinite(second)):
        return Likeness.DIFFERENT
    close = abs(first - second) <= max(NEAR * max(abs(first), abs(second)), TINY)
    return Likeness.CLOSE if close else Likeness.DIFFERENT
