"""The values of inputs: zeros, ones, random numbers, and texts. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tritonclient.utils import triton_to_np_dtype

Array: TypeAlias = NDArray[Any]

BYTES = "BYTES"
_BELOW = 10
"""Random whole numbers are smaller: they may be indices."""
_PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAD0lEQVR42mNowAEYhpYEAILzYAEllbNjAAAAAElFTkSuQmCC"
)
"""A grey picture of 8 by 8 pixels."""


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """An input of a request. `kind`: its data type as in requests, such as FP32 or BYTES."""

    name: str
    kind: str
    values: Array


@dataclass(frozen=True, slots=True)
class Filling:
    """What tensors are filled with: `number`, random ones with None; `text` for those with strings."""

    number: int | None
    text: bytes
    numbers_words: str
    text_words: str

    def words(self, kinds: Sequence[str]) -> str:
        """Returns what a request with inputs of these data types has, such as "zeros and empty strings"."""
        parts = [self.numbers_words] if any(kind != BYTES for kind in kinds) else []
        return " and ".join([*parts, *([self.text_words] if BYTES in kinds else [])]) or "no inputs"


FILLINGS = (
    Filling(0, b"", "zeros", "empty strings"),
    Filling(1, b"1", "ones", 'the text "1"'),
    Filling(None, b"some text", "random numbers", 'the text "some text"'),
    Filling(None, b"{}", "random numbers", 'the text "{}"'),
    Filling(None, _PNG, "random numbers", "a PNG file"),
)


def fillings(kinds: Sequence[str]) -> Sequence[Filling]:
    """Returns the fillings that differ for inputs of these data types."""
    if not kinds:
        return FILLINGS[:1]
    return FILLINGS if BYTES in kinds else FILLINGS[:3]


def kind_of(data_type: str) -> str:
    """Returns the data type in requests for one of config.pbtxt: FP32 for TYPE_FP32, BYTES for TYPE_STRING."""
    return data_type.removeprefix("TYPE_").replace("STRING", BYTES)


def is_known(kind: str) -> bool:
    """Whether tensors of the data type can be made."""
    return triton_to_np_dtype(kind) is not None


def filled(kind: str, shape: Sequence[int], filling: Filling) -> Array:
    """Returns a tensor. The same arguments return the same random numbers."""
    if kind == BYTES:
        return np.full(shape, filling.text, dtype=np.object_)
    dtype = _dtype(kind)
    if filling.number is not None:
        return np.full(shape, filling.number, dtype=dtype)
    random = np.random.default_rng(1)
    if kind.startswith(("FP", "BF")):
        return random.random(tuple(shape)).astype(dtype)
    return random.integers(0, 2 if kind == "BOOL" else _BELOW, tuple(shape)).astype(dtype)


def given(kind: str, shape: Sequence[int], values: Sequence[Any]) -> Array:
    """Returns a tensor with the user's values. Raises ValueError, TypeError or OverflowError if they don't fit."""
    if kind == BYTES:
        array = np.empty(len(values), dtype=np.object_)
        array[:] = [value if isinstance(value, bytes) else str(value).encode() for value in values]
        return array.reshape(tuple(shape))
    return np.array(values, dtype=_dtype(kind)).reshape(tuple(shape))


def serialized(kind: str, content: bytes) -> list[Any]:
    """Returns the values in the raw content of a tensor: strings have their length before them, in 4 bytes.

    Raises ValueError for half a value.
    """
    if kind != BYTES:
        return list(np.frombuffer(content, dtype=_dtype(kind)))
    values, at = [], 0
    while at < len(content):
        end = at + 4 + int.from_bytes(content[at : at + 4], "little")
        if end > len(content):
            raise ValueError("strings need their length before them, in 4 bytes")
        values.append(content[at + 4 : end])
        at = end
    return values


def item_bytes(kind: str) -> int:
    """Returns the size of one element in bytes; an estimate for BYTES."""
    return 64 if kind == BYTES else _dtype(kind).itemsize


def _dtype(kind: str) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(triton_to_np_dtype(kind))
    return dtype
