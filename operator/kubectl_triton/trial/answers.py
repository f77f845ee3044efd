"""Compares a response with the configuration. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from triton_repository_check.text import one_line

from .outcome import Outcome, Output
from .requests import Request, kind


class Wrong(NamedTuple):
    """A difference. `what`: the output and what differs, equal for all values. `is_sure`: whether clients must fail."""

    what: str
    words: str
    is_sure: bool


def wrong(config: Any, request: Request, outcome: Outcome, *, streams: bool) -> Iterator[Wrong]:
    """Yields what differs from the configuration in the responses to a request: data types, shapes, missing outputs.

    `streams`: the responses of a decoupled model may have different outputs each.
    """
    declared = {output.name: output for output in config.output}
    for response in outcome.responses:
        for output in response:
            if output.name in declared:
                yield from _differences(declared[output.name], output, request.batch, bool(config.max_batch_size))
        missing = declared.keys() - {output.name for output in response}
        for name in sorted(missing) if not streams else ():
            yield Wrong(f"{name} missing", f"the response lacks the output {one_line(name)}", is_sure=False)


def _differences(declared: Any, output: Output, batch: int | None, has_batch: bool) -> Iterator[Wrong]:
    name = one_line(output.name)
    if output.kind != kind(declared):
        words = f"the output {name} is {output.kind}, but config.pbtxt declares {kind(declared)}"
        yield Wrong(f"{name} kind", words, is_sure=True)
    if words := _wrong_shape(declared, output.shape, batch, has_batch):
        # Triton sends any shape. Only the next step of an ensemble refuses it.
        yield Wrong(f"{name} shape", f"the output {name} has the shape {_text(output.shape)}{words}", is_sure=False)
    elif output.fault:
        words = (
            f"the content of the output {name} doesn't fit its shape {_text(output.shape)}: {one_line(output.fault)}"
        )
        yield Wrong(f"{name} content", words, is_sure=True)


def _wrong_shape(declared: Any, shape: Sequence[int], batch: int | None, has_batch: bool) -> str:
    """Returns why the shape isn't the declared one, to follow the shape; "" if it is."""
    dims = tuple(declared.dims)
    if has_batch:
        if batch is not None and (not shape or shape[0] != batch):
            return f" for a batch of {batch}"
        shape = shape[1:]
    elif dims == (1,) and not shape:  # a scalar
        return ""
    if len(shape) == len(dims) and all(dim in (-1, size) for dim, size in zip(dims, shape, strict=True)):
        return ""
    return f", but config.pbtxt declares {_text(dims)}{' for each of the batch' if has_batch else ''}"


def _text(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"
