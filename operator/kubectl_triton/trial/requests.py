"""Makes requests from a model's configuration. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import tensors
from .tensors import BYTES, Filling, Tensor

SIZES = (8, 1, 32)
"""The sizes that dimensions of -1 get, all of them in one request."""
MAX_BYTES = 64 << 20
"""Maximum size of the inputs of a request with the largest batch."""
_MAX_OPTIONAL = 8
"""Maximum number of optional inputs of which each is left out alone."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a request made from a configuration has.

    - `batch`: None if the model has no batches.
    - `size`: of dimensions of -1; None if there are none.
    - `absent`: the optional inputs that are left out.
    """

    filling: Filling
    batch: int | None
    size: int | None
    absent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of a request in a sequence. `number`: the sequence's, which makes its id."""

    number: int
    start: bool = True
    end: bool = True


@dataclass(frozen=True, eq=False, slots=True)
class Request:
    """A request to a model.

    - `words`: what it is, to follow "a request with".
    - `batch`: the size of its batch; None if the model has none, or if it isn't known.
    - `real`: whether a user gave the values.
    """

    inputs: tuple[Tensor, ...]
    words: str
    batch: int | None = None
    real: bool = False
    turn: Turn | None = None


def choices(config: Any) -> Iterator[Choice]:
    """Yields what the first requests have: each size with each filling, all inputs present, the smallest batch."""
    kinds = [kind(tensor) for tensor in config.input]
    for size in sizes(config):
        for filling in tensors.fillings(kinds):
            yield Choice(filling, 1 if config.max_batch_size else None, size)


def absences(config: Any, choice: Choice) -> Iterator[Choice]:
    """Yields the choice without its optional inputs: all of them, and each alone."""
    optional = [tensor.name for tensor in config.input if tensor.optional]
    if optional:
        yield replace(choice, absent=frozenset(optional))
    if 1 < len(optional) <= _MAX_OPTIONAL:
        for name in optional:
            yield replace(choice, absent=frozenset([name]))


def batches(config: Any, choice: Choice) -> Iterator[Choice]:
    """Yields the choice with two in a batch, and with the largest batch that isn't too large to be sent."""
    if config.max_batch_size < 2 or config.HasField("sequence_batching"):
        return
    each = sum(
        math.prod(shape(tensor, choice.size or 1, None)) * tensors.item_bytes(kind(tensor)) for tensor in config.input
    )
    largest = min(config.max_batch_size, MAX_BYTES // max(each, 1))
    for batch in sorted({2, largest}):
        if 2 <= batch <= largest:
            yield replace(choice, batch=batch)


def sizes(config: Any) -> Sequence[int | None]:
    """Returns the sizes for dimensions of -1; only None if there are none."""
    return SIZES if any(dim < 0 for tensor in config.input for dim in tensor.dims) else (None,)


def is_plain(config: Any) -> bool:
    """Whether the configuration says all about valid inputs: numbers, and no dimensions of -1."""
    return sizes(config) == (None,) and all(kind(tensor) != BYTES for tensor in config.input)


def unmakeable(config: Any) -> str:
    """Returns why no request can be made from the configuration; "" if it can."""
    for tensor in config.input:
        if not tensors.is_known(kind(tensor)):
            return f"the input {tensor.name} has the data type {_data_type(tensor)}"
        if tensor.is_shape_tensor:
            return f"the input {tensor.name} has the shape of another one as its values"
        if not tensor.dims and not tensor.HasField("reshape"):
            return f"the configuration doesn't say the shape of the input {tensor.name}"
    return ""


def made(config: Any, choice: Choice, turn: Turn | None = None) -> Request:
    """Returns the request."""
    present = [tensor for tensor in config.input if tensor.name not in choice.absent]
    inputs = tuple(
        Tensor(
            tensor.name,
            kind(tensor),
            tensors.filled(kind(tensor), shape(tensor, choice.size or 1, choice.batch), choice.filling),
        )
        for tensor in present
    )
    return Request(inputs, _words(choice, [tensor.kind for tensor in inputs]), choice.batch, turn=turn)


def _words(choice: Choice, kinds: Sequence[str]) -> str:
    words = [choice.filling.words(kinds)]
    if choice.size is not None:
        words.append(f"{choice.size} in each variable dimension")
    if choice.batch is not None:
        words.append(f"batch size {choice.batch}")
    if choice.absent:
        words.append(f"without {', '.join(sorted(choice.absent))}")
    return ", ".join(words)


def shape(tensor: Any, size: int, batch: int | None) -> list[int]:
    """Returns the shape of an input of a configuration. `size`: of its dimensions of -1."""
    return [*([] if batch is None else [batch]), *(int(dim) if dim >= 0 else size for dim in tensor.dims)]


def kind(tensor: Any) -> str:
    """Returns the data type of a tensor of a configuration, as in requests."""
    return tensors.kind_of(_data_type(tensor))


def _data_type(tensor: Any) -> str:
    return str(tensor.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[tensor.data_type].name)
