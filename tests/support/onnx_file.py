"""Writes small ONNX files without the package `onnx`, which the tests don't depend on."""

from __future__ import annotations

from collections.abc import Sequence

Dims = Sequence[int | str]
"""The sizes of the dimensions. A string is the name of a variable dimension."""

FP32, UINT8, INT32, INT64, STRING, FP16 = 1, 2, 6, 7, 8, 10


def varint(value: int) -> bytes:
    out = bytearray()
    value &= 2**64 - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def value(name: str, kind: int, dims: Dims | None) -> bytes:
    """Returns a ValueInfoProto. Without `dims` it has no shape."""
    shape = b""
    if dims is not None:
        shape = block(2, b"".join(block(1, block(2, d) if isinstance(d, str) else number(1, d)) for d in dims))
    return block(1, name) + block(2, block(1, number(1, kind) + shape))


def sequence(name: str, kind: int) -> bytes:
    """Returns a ValueInfoProto of a sequence of tensors."""
    return block(1, name) + block(2, block(4, block(1, block(1, number(1, kind)))))


def node(operation: str, inputs: Sequence[str], outputs: Sequence[str], attributes: bytes = b"") -> bytes:
    names = [*(block(1, i) for i in inputs), *(block(2, o) for o in outputs)]
    return b"".join(names) + block(3, operation) + block(4, operation) + attributes


def cast_to(kind: int) -> bytes:
    """Returns the attribute `to` of a Cast node."""
    return block(5, block(1, "to") + number(3, kind) + number(20, 2))


def shape_constant(name: str, sizes: Sequence[int]) -> bytes:
    """Returns a weight: an INT64 vector for Reshape."""
    raw = b"".join(size.to_bytes(8, "little", signed=True) for size in sizes)
    return number(1, len(sizes)) + number(2, INT64) + block(8, name) + block(9, raw)


def branch(condition: str, outputs: Sequence[str], nodes: Sequence[bytes], weights: Sequence[bytes] = ()) -> bytes:
    """Returns an If node whose only branch is a graph of `nodes` and `weights`."""
    graph = b"".join([*(block(1, n) for n in nodes), *(block(5, w) for w in weights)])
    return node("If", [condition], outputs, block(5, block(1, "then_branch") + block(6, graph) + number(20, 5)))


def external_weight(
    name: str, location: str | None, data_location: int = 1, length: str | None = "32", kind: int = FP32, count: int = 8
) -> bytes:
    """Returns a weight of eight FP32 values, or others, in an external file."""
    fields = {"location": location, "offset": "0", "length": length}
    entries = b"".join(block(13, block(1, key) + block(2, text)) for key, text in fields.items() if text is not None)
    return number(1, count) + number(2, kind) + block(8, name) + entries + number(14, data_location)


def constant(output: str, weight: bytes) -> bytes:
    """Returns a Constant node with a weight."""
    return node("Constant", [], [output], block(5, block(1, "value") + block(5, weight) + number(20, 4)))


def model(
    inputs: Sequence[bytes],
    outputs: Sequence[bytes],
    nodes: Sequence[bytes] = (),
    weights: Sequence[bytes] = (),
    *,
    ir_version: int = 8,
    opset: int = 17,
) -> bytes:
    """Returns a ModelProto. Its operators are those of the standard domain."""
    graph = b"".join(
        [
            *(block(1, n) for n in nodes),
            block(2, "graph"),
            *(block(5, w) for w in weights),
            *(block(11, i) for i in inputs),
            *(block(12, o) for o in outputs),
        ]
    )
    return number(1, ir_version) + block(7, graph) + block(8, number(2, opset))


def reshaped(
    source: tuple[str, int, Dims],
    target: tuple[str, int, Dims],
    sizes: Sequence[int],
) -> bytes:
    """Returns a model that reshapes its input to `sizes`, which include the batch."""
    return model(
        [value(*source)],
        [value(*target)],
        [node("Reshape", [source[0], "shape"], [target[0]])],
        [shape_constant("shape", sizes)],
    )
