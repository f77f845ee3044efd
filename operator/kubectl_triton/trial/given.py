"""Reads requests of a user: the file of spec.healthRequest, and perf_analyzer's files of inputs. Pure."""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

from . import tensors
from .requests import Request, Turn, kind, shape
from .tensors import BYTES, Tensor

MAX_REQUESTS = 100
"""How many requests of a file are sent."""
_FAULTS = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


class GivenError(ValueError):
    """A file has no requests for the model. The message is for the user."""


def inputs_of(content: bytes) -> frozenset[str]:
    """Returns the names of the inputs in one of perf_analyzer's files. Raises GivenError."""
    return frozenset(name for step in itertools.chain(*_sequences(content)) for name in step)


def from_file(config: Any, content: bytes, words: str) -> Iterator[Request]:
    """Yields the requests of one of perf_analyzer's files, at most MAX_REQUESTS. `words`: the file. Raises GivenError.

    The requests of a list are a sequence, if the model has sequences.
    """
    has_turns = config.HasField("sequence_batching")
    sent = 0
    for number, steps in enumerate(_sequences(content), 1):
        for index, step in enumerate(steps):
            if sent == MAX_REQUESTS and (index == 0 or not has_turns):
                return
            sent = min(sent + 1, MAX_REQUESTS)
            turn = Turn(number, index == 0, index == len(steps) - 1) if has_turns else None
            where = f"entry {number}" if len(steps) == 1 else f"entry {number}.{index + 1}"
            try:
                inputs = tuple(_tensor(config, name, value) for name, value in step.items())
            except _FAULTS as error:
                raise GivenError(f"{where}: {_words(error)}") from None
            yield Request(inputs, f"the values of {words}, {where}", _one(config), True, turn)


def health_request(config: Any, name: str, content: bytes) -> Request:
    """Returns the request of spec.healthRequest. `name`: the file's. Raises GivenError."""
    if not name.endswith(".json"):
        if len(config.input) != 1:
            raise GivenError(f"the file isn't JSON, and the model has {len(config.input)} inputs")
        only = config.input[0]
        try:
            values = [content] if kind(only) == BYTES else tensors.serialized(kind(only), content)
            array = tensors.given(kind(only), _guess(only, _one(config), len(values)), values)
        except _FAULTS as error:
            raise GivenError(_words(error)) from None
        return Request((Tensor(only.name, kind(only), array),), f"the file {name}", _one(config), True, _turn(config))
    try:
        body = json.loads(content.decode("utf-8-sig"))
        inputs = tuple(_of_body(entry) for entry in body["inputs"])
        batch = int(body["inputs"][0]["shape"][0]) if config.max_batch_size and body["inputs"] else None
    except _FAULTS as error:
        raise GivenError(_words(error)) from None
    return Request(inputs, f"the body in {name}", batch, True, _turn(config))


def _of_body(entry: dict[str, Any]) -> Tensor:
    kind = entry["datatype"]
    return Tensor(entry["name"], kind, tensors.given(kind, entry["shape"], _flat(entry["data"])))


def _turn(config: Any) -> Turn | None:
    return Turn(1) if config.HasField("sequence_batching") else None


def _one(config: Any) -> int | None:
    return 1 if config.max_batch_size else None


def _sequences(content: bytes) -> list[list[dict[str, Any]]]:
    try:
        entries = json.loads(content)["data"]
        lists = [entry if isinstance(entry, list) else [entry] for entry in entries]
        if lists and all(isinstance(step, dict) for steps in lists for step in steps):
            return lists
    except _FAULTS:
        pass
    raise GivenError('not perf_analyzer\'s JSON format, which is {"data": [{"INPUT": […]}, …]}')


def _tensor(config: Any, name: str, value: Any) -> Tensor:
    tensor = next((tensor for tensor in config.input if tensor.name == name), None)
    if tensor is None:
        raise GivenError(f"the model has no input {name}")
    content, dims = (value.get("content", value), value.get("shape")) if isinstance(value, dict) else (value, None)
    batch = _one(config)
    try:
        if isinstance(content, dict):
            flat = tensors.serialized(kind(tensor), base64.b64decode(content["b64"], validate=True))
        else:
            flat = _flat(content)
        at = _guess(tensor, batch, len(flat)) if dims is None else [*([1] if batch else []), *dims]
        return Tensor(name, kind(tensor), tensors.given(kind(tensor), at, flat))
    except (*_FAULTS, binascii.Error) as error:
        raise GivenError(f"{name}: {_words(error)}") from None


def _guess(tensor: Any, batch: int | None, count: int) -> list[int]:
    """Returns the shape of `count` values: that of the configuration, whose only dimension of -1 follows from it."""
    fixed = shape(tensor, 1, batch)
    variable = [index for index, dim in enumerate(fixed[-len(tensor.dims) :]) if tensor.dims[index] < 0]
    if len(variable) == 1:
        rest = max(1, math.prod(fixed))
        fixed[len(fixed) - len(tensor.dims) + variable[0]] = count // rest
    return fixed


def _flat(value: Any) -> list[Any]:
    """Returns the values of nested lists."""
    if not isinstance(value, list):
        return [value]
    return [item for inner in value for item in _flat(inner)]


def _words(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return str(error) or type(error).__name__
