"""Reads the inputs and outputs that an ONNX file declares, without its weights.

The `onnx` package would add its compiled schemas and numpy to each pod's init container, and parse the whole file. A
file may have hundreds of megabytes, but its names and shapes only have a few hundred bytes. So this module reads the
protobuf wire format and skips the rest with a seek. The field numbers of onnx.proto never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import IO

MAX_TENSORS = 10_000
"""Maximum number of inputs and outputs. A file with more is invalid."""
MAX_FIELDS = 1_000_000
"""Maximum number of protobuf fields that are read, to limit time and memory. A large model has about 100,000."""
ORT = ".ort"
"""The end of the names from which ONNX Runtime reads only the ORT format."""
_NAME_BYTES = 4096
_WITH_OPSET = 3
"""The first IR version that contains opsets."""
_WITH_DEFAULTS = 4
"""The first IR version whose inputs may have default values."""
_MAX_DEPTH = 33
"""Maximum number of graphs around a graph: protobuf reads at most 100 messages inside of each other."""
_NO_TENSORS = (4, 5, 8, 9)
"""Fields of a TypeProto that aren't tensors: a sequence, a map, a sparse tensor, an optional."""

_BITS = {1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16,
         17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4}  # fmt: skip
"""Bits of an element by onnx.TensorProto.DataType."""
# onnx.TensorProto.DataType → Triton's DataType, as in the onnxruntime backend.
TYPES = {
    1: "TYPE_FP32",
    2: "TYPE_UINT8",
    3: "TYPE_INT8",
    4: "TYPE_UINT16",
    5: "TYPE_INT16",
    6: "TYPE_INT32",
    7: "TYPE_INT64",
    8: "TYPE_STRING",
    9: "TYPE_BOOL",
    10: "TYPE_FP16",
    11: "TYPE_FP64",
    12: "TYPE_UINT32",
    13: "TYPE_UINT64",
    16: "TYPE_BF16",
}


class OnnxError(ValueError):
    """The file isn't an ONNX model. The message says why."""


class TooManyFieldsError(ValueError):
    """The file has more than MAX_FIELDS fields."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of the network.

    - `data_type`: Triton's type name, e.g. TYPE_FP32; empty if Triton doesn't have the type, or if it isn't a tensor.
    - `dims`: the shape with the batch dimension; -1 is a variable dimension. None if the file declares no shape.
    - `is_tensor`: false for a sequence, a map or an optional, which Triton doesn't support.
    """

    name: str
    data_type: str
    dims: tuple[int, ...] | None
    is_tensor: bool = True


@dataclass(frozen=True, slots=True)
class Network:
    """The interface of an ONNX file.

    - `inputs`: the inputs without a default value in the file. Each request needs them.
    - `defaults`: inputs with a default value in the file, which a request may override.
    - `external`: the files with external weights that the network uses, relative to the directory of the ONNX file, and
      the bytes that each needs.
    - `lengths`: external weights with a wrong length: the bytes that the file says, and those that the shape needs.
    - `ir_version`: the version of the file format; 0 if the file doesn't contain it.
    - `opset`: the version of the standard operators; 0 if the file doesn't contain it.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    defaults: tuple[Tensor, ...] = ()
    external: Mapping[str, int] = field(default_factory=dict)
    lengths: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    ir_version: int = 0
    opset: int = 0


@dataclass(frozen=True, slots=True)
class _Weight:
    """A tensor in the ONNX file.

    - `location`: the file with its content; None if the ONNX file contains it.
    - `need`: the bytes that the other file must have.
    - `length`, `size`: the bytes of its content, as the file says and as its shape needs; 0 if unknown.
    - `is_constant`: whether an attribute of a node contains it.
    """

    name: str
    location: str | None
    need: int
    length: int
    size: int
    is_constant: bool = False


class _Source:
    """A file of which at most MAX_FIELDS fields are read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.read, self.seek = file.read, file.seek
        self._left = MAX_FIELDS

    def count(self) -> None:
        """Counts one field. Raises TooManyFieldsError if there are too many."""
        self._left -= 1
        if self._left < 0:
            raise TooManyFieldsError


def is_ort(file: IO[bytes]) -> bool:
    """Whether a file has the ORT format of ONNX Runtime, a FlatBuffer, which `read` doesn't read."""
    file.seek(0)
    return file.read(8)[4:] == b"ORTM"


def read(file: IO[bytes], size: int) -> Network:
    """Returns the interface of the ONNX model in the `size` bytes of `file`.

    Raises OnnxError if it isn't an ONNX model, TooManyFieldsError, and OSError if it can't be read.
    """
    if not size:
        raise OnnxError("the file is empty")
    if is_ort(file):
        raise OnnxError(f"it has the ORT format, which ONNX Runtime reads only from a file *{ORT}")
    file.seek(0)
    if file.read(40).startswith(b"version https://git-lfs"):
        raise OnnxError("it is a Git LFS pointer; run git lfs pull")
    source = _Source(file)
    try:
        fields = list(_fields(source, 0, size))
        graphs = [(start, end) for number, start, end in fields if number == 7]
        if not graphs:
            raise OnnxError("it contains no graph")
        ir_version = next((start for number, start, _ in fields if number == 1), 0)
        if not ir_version or (ir_version >= _WITH_OPSET and all(number != 8 for number, _, _ in fields)):
            raise OnnxError(f"it contains no {'opset' if ir_version else 'IR version'}")
        opset = max((_opset(source, start, end) for number, start, end in fields if number == 8), default=0)
        network = _network(source, graphs)
        # Before IR version 4 these are weights, which no request can replace.
        defaults = network.defaults if ir_version >= _WITH_DEFAULTS else ()
        return replace(network, defaults=defaults, ir_version=ir_version, opset=opset)
    except EOFError:
        raise OnnxError("it is truncated, or has another format") from None


def _opset(file: _Source, start: int, end: int) -> int:
    """Reads an OperatorSetIdProto: domain = 1, version = 2. Returns 0 for other operators than the standard ones."""
    pair = {number: (a, b) for number, a, b in _fields(file, start, end)}
    domain = _text(file, *pair[1]) if 1 in pair else ""
    return pair[2][0] if 2 in pair and domain in ("", "ai.onnx") else 0


def _network(file: _Source, graphs: Sequence[tuple[int, int]]) -> Network:
    """Reads a GraphProto. `graphs`: its parts, which protobuf puts together."""
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    constants: set[str] = set()
    weights: list[_Weight] = []
    for number, first, last in chain.from_iterable(_fields(file, *graph) for graph in graphs):
        if number in (11, 12):
            (inputs if number == 11 else outputs).append(_tensor(file, first, last))
            if len(inputs) + len(outputs) > MAX_TENSORS:
                raise OnnxError(f"it declares more than {MAX_TENSORS} inputs and outputs")
        elif number == 5:  # a weight; before IR version 4 it is an input too
            weight = _weight(file, first, last)
            constants.add(weight.name)
            weights += [weight] if weight.location is not None else []
        elif number == 1:
            weights += _weights_of_node(file, first, last)
    # ONNX Runtime removes the weights that nothing reads before it opens their files.
    kept = [weight for weight in weights if weight.is_constant]
    if len(kept) < len(weights):
        read = {t.name for t in inputs}
        read.update(*(_names_read(file, *graph) for graph in graphs))
        kept = [weight for weight in weights if weight.is_constant or weight.name in read]
    external: dict[str, int] = {}
    for weight in kept:
        location = weight.location or ""
        external[location] = max(external.get(location, 0), weight.need)
    return Network(
        tuple(t for t in inputs if t.name not in constants),
        tuple(outputs),
        tuple(t for t in inputs if t.name in constants),
        external,
        {w.name: (w.length, w.size) for w in kept if w.size and w.length not in (0, w.size)},
    )


def _weights_of_node(file: _Source, start: int, end: int, depth: int = 1) -> Iterator[_Weight]:
    """Yields the external weights in the attributes of a node: tensors, and the weights of graphs."""
    if depth > _MAX_DEPTH:
        raise EOFError
    for number, first, last in _fields(file, start, end):
        for kind, a, b in _fields(file, first, last) if number == 5 else ():
            if kind in (5, 10):
                weight = _weight(file, a, b)
                if weight.location is not None:
                    yield replace(weight, is_constant=True)
            for inner, c, d in _fields(file, a, b) if kind in (6, 11) else ():
                if inner == 1:
                    yield from _weights_of_node(file, c, d, depth + 1)
                elif inner == 5 and (weight := _weight(file, c, d)).location is not None:
                    yield weight


def _names_read(file: _Source, start: int, end: int, depth: int = 0) -> Iterator[str]:
    """Yields the names of a graph's outputs, and of the tensors that its nodes read, also in graphs inside of nodes."""
    if depth > _MAX_DEPTH:
        raise EOFError
    for number, first, last in _fields(file, start, end):
        for inner, a, b in _fields(file, first, last) if number in (1, 12) else ():
            if inner == 1:
                yield _text(file, a, b)
            for kind, c, d in _fields(file, a, b) if (number, inner) == (1, 5) else ():
                if kind in (6, 11):
                    yield from _names_read(file, c, d, depth + 1)


def _tensor(file: _Source, start: int, end: int) -> Tensor:
    """Reads a ValueInfoProto: name = 1, type = 2 { tensor_type = 1 { elem_type = 1, shape = 2 } }."""
    name, kind, dims, is_tensor = "", "", None, True
    for number, a, b in _fields(file, start, end):
        if number == 1:
            name = _text(file, a, b)
        elif number == 2:
            for inner, c, d in _fields(file, a, b):
                if inner == 1:
                    kind, dims = _tensor_type(file, c, d)
                elif inner in _NO_TENSORS:
                    is_tensor = False
    return Tensor(name, kind, dims, is_tensor)


def _tensor_type(file: _Source, start: int, end: int) -> tuple[str, tuple[int, ...] | None]:
    kind, dims = "", None
    for number, a, b in _fields(file, start, end):
        if number == 1:
            kind = TYPES.get(a, "")
        elif number == 2:
            dims = tuple(_dim(file, c, d) for inner, c, d in _fields(file, a, b) if inner == 1)
    return kind, dims


def _dim(file: _Source, start: int, end: int) -> int:
    """Reads a dimension: dim_value = 1, or a name, or nothing. Values below 1 mean variable dimensions too."""
    value = next((a for number, a, _ in _fields(file, start, end) if number == 1), -1)
    return value if 0 < value < 2**63 else -1


def _weight(file: _Source, start: int, end: int) -> _Weight:
    """Reads a TensorProto: dims = 1, data_type = 2, name = 8, external_data = 13, data_location = 14.

    External data has the keys location, offset and length. ONNX Runtime ignores it if data_location isn't 1.
    """
    name, elements, bits = "", 1, 0
    entries: dict[str, str] = {}
    is_external = False
    for number, a, b in _fields(file, start, end):
        if number == 1:
            for size in [a] if a == b else _packed(file, a, b):
                elements = min(elements * size, 2**63)
        elif number == 2:
            bits = _BITS.get(a, 0)
        elif number == 8:
            name = _text(file, a, b)
        elif number == 13:
            pair = {key: _text(file, c, d) for key, c, d in _fields(file, a, b) if key in (1, 2)}
            entries[pair.get(1, "")] = pair.get(2, "")
        elif number == 14:
            is_external = a == 1
    offset, length = (_count(entries.get(key, "0")) for key in ("offset", "length"))
    size = (elements * bits + 7) // 8
    return _Weight(name, entries.get("location", "") if is_external else None, offset + (length or size), length, size)


def _packed(file: _Source, start: int, end: int) -> Iterator[int]:
    at = start
    file.seek(at)
    while at < end:
        value, at = _varint(file, at, end)
        yield value


def _count(text: str) -> int:
    """Returns the number in a text; 0 if it isn't one."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


def _fields(file: _Source, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Returns the number, start and end of each field of the message at [start, end); for a varint, its value twice.

    Raises EOFError if a field ends after the message.
    """
    at = start
    while at < end:
        file.seek(at)
        key, at = _varint(file, at, end)
        number, kind = key >> 3, key & 7
        file.count()
        if not number:
            raise EOFError
        if kind == 0:
            value, at = _varint(file, at, end)
            yield number, value, value
            continue
        if kind == 2:
            length, at = _varint(file, at, end)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise EOFError
        if at + length > end:
            raise EOFError
        yield number, at, at + length
        at += length


def _varint(file: _Source, at: int, end: int) -> tuple[int, int]:
    """Reads a varint at the file's position, which is `at`. Returns it and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        at += 1
        if not byte or at > end:
            raise EOFError
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value, at
    raise EOFError


def _text(file: _Source, start: int, end: int) -> str:
    if end - start > _NAME_BYTES:
        raise EOFError
    file.seek(start)
    return file.read(end - start).decode("utf-8", "replace")
