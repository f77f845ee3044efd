"""What answers have in common: data types, tolerances, and bytes that aren't Triton's."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.utils import serialize_byte_tensor

from answer_comparison.answers import Likeness, compare, outputs

EXACT, CLOSE, DIFFERENT = Likeness


def binary(datatype: str, data: bytes, shape: list[int]) -> tuple[bytes, int]:
    """Returns the body of an answer with one output, and how many of its bytes are JSON."""
    described = {"name": "Y", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"model_name": "m", "outputs": [described]}).encode()
    return head + data, len(head)


def text(datatype: str, data: list[Any]) -> tuple[bytes, None]:
    described = {"name": "Y", "datatype": datatype, "shape": [len(data)], "data": data}
    return json.dumps({"outputs": [described]}).encode(), None


def likeness(first: tuple[bytes, int | None], second: tuple[bytes, int | None]) -> Likeness:
    (found,) = compare(outputs(*first), outputs(*second)).values()
    return found


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (100.0, 100.0, EXACT), (100.0, 100.9, CLOSE), (100.0, 101.2, DIFFERENT), (0.0, 0.0009, CLOSE),
        (0.0, 0.002, DIFFERENT), (math.nan, math.nan, EXACT), (math.inf, math.inf, EXACT),
        (math.inf, -math.inf, DIFFERENT), (math.inf, 1e300, DIFFERENT), (math.nan, 0.0, DIFFERENT),
        (-1.0, 1.0, DIFFERENT),
    ],
)  # fmt: skip
def test_numbers_with_a_decimal_point_may_be_close(first: float, second: float, expected: Likeness) -> None:
    pairs = [binary("FP64", struct.pack("<d", value), [1]) for value in (first, second)]
    # Two NaN with the same bits are the same data.
    assert likeness(*pairs) == likeness(text("FP32", [first]), text("FP32", [second])) == expected


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64", "BF16"])
def test_reads_each_type_of_numbers(datatype: str) -> None:
    def answer(*values: float) -> tuple[bytes, int]:
        if datatype == "BF16":
            data = (np.array(values, np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        else:
            data = np.array(values, f"<f{int(datatype[2:]) // 8}").tobytes()
        return binary(datatype, data, [len(values)])

    assert likeness(answer(1, 200), answer(1, 200)) == EXACT
    assert likeness(answer(1, 200), answer(1, 201)) == CLOSE
    assert likeness(answer(1, 200), answer(1, 220)) == DIFFERENT


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64])
def test_integers_are_the_same_or_different(kind: Any) -> None:
    datatype = np.dtype(kind).name.upper()
    first, second = (binary(datatype, np.array([120, value], kind).tobytes(), [2]) for value in (121, 122))
    assert (likeness(first, first), likeness(first, second)) == (EXACT, DIFFERENT)
    assert likeness(text(datatype, [10_000]), text(datatype, [10_001])) == DIFFERENT


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("cat", "cat", EXACT), ("cat", "dog", DIFFERENT), ("", "cat", DIFFERENT),
        ('{"box": [1.0, 2.0], "id": 3}', '{"id": 3, "box": [1.001, 2.0]}', CLOSE),
        ('{"box": [1.0]}', '{"box":[1.0]}', CLOSE), ('{"id": 300}', '{"id": 301}', DIFFERENT),
        ('{"a": 1}', '{"b": 1}', DIFFERENT), ("[1]", "[1, 2]", DIFFERENT), ("[true]", "[1]", DIFFERENT),
        ("[null]", "[0]", DIFFERENT), ("[1", "[1]", DIFFERENT), ("[1.0]", '{"a": 1.0}', DIFFERENT),
        (b"\xff\x00", b"\xff\x00", EXACT), (b"\xff", b"\xfe", DIFFERENT),
    ],
)  # fmt: skip
def test_text_that_is_json_is_compared_as_json(first: str | bytes, second: str | bytes, expected: Likeness) -> None:
    def answer(value: str | bytes) -> tuple[bytes, int]:
        return binary("BYTES", serialize_byte_tensor(np.array([value], np.object_)).item(), [1])

    assert likeness(answer(first), answer(second)) == expected
    if isinstance(first, str):
        assert likeness(text("BYTES", [first]), text("BYTES", [second])) == expected


def test_other_types_shapes_or_outputs_are_different() -> None:
    one = binary("FP32", struct.pack("<2f", 1, 2), [2])
    assert likeness(one, binary("FP32", struct.pack("<2f", 1, 2), [1, 2])) == DIFFERENT
    assert likeness(one, binary("FP64", struct.pack("<2d", 1, 2), [2])) == DIFFERENT
    other = json.dumps({"outputs": [{"name": "Z", "datatype": "FP32", "shape": [1], "data": [1.0]}]}).encode()
    assert compare(outputs(*one), outputs(other, None)) == {"Y": DIFFERENT, "Z": DIFFERENT}


def test_of_generate_all_but_the_names_of_the_model_is_compared() -> None:
    first = {"model_name": "a", "model_version": "1", "id": "x", "text_output": "yes", "score": 0.5}
    second = {**first, "model_version": "2", "id": "y", "score": 0.501}
    found = compare(*(outputs(json.dumps(answer).encode(), None) for answer in (first, second)))
    assert found == {"text_output": EXACT, "score": CLOSE}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
TENSORS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["Y", "Z"]) | JSON, "datatype": st.sampled_from(["FP32", "BYTES", "BF16"]) | JSON,
         "shape": JSON, "parameters": JSON | st.fixed_dictionaries({"binary_data_size": st.integers(-3, 20)})},
        optional={"data": JSON},
    ),
    max_size=3,
)  # fmt: skip
BODIES = st.binary(max_size=40) | st.builds(
    lambda outputs, rest: json.dumps({"outputs": outputs}).encode() + rest, TENSORS | JSON, st.binary(max_size=20)
) | JSON.map(lambda value: json.dumps(value).encode())  # fmt: skip


@given(BODIES, st.none() | st.integers(0, 200), BODIES)
def test_bytes_that_are_not_tritons_are_refused(first: bytes, length: int | None, second: bytes) -> None:
    try:
        one, other = outputs(first, length), outputs(second, None)
        compare(one, other)
        assert set(compare(one, one).values()) <= {EXACT, DIFFERENT}
    except ValueError:
        pass


def test_deep_json_is_refused() -> None:
    deep = b'{"text_output": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(ValueError, match="an answer isn't Triton's"):
        outputs(deep, None)


def test_true_is_not_one() -> None:
    first, second = (outputs(json.dumps({"found": value}).encode(), None) for value in (True, 1))
    assert compare(first, second) == {"found": DIFFERENT}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("0.912345:3:cat", "0.912346:3:cat", CLOSE), ("0.912345:3", "0.912346:3", CLOSE),
        ("0.912345:3:cat", "0.5:3:cat", DIFFERENT), ("0.912345:3:cat", "0.912345:4:cat", DIFFERENT),
        ("0.912345:3:cat", "0.912345:3:dog", DIFFERENT), ("-1.5:0:a:b", "-1.500001:0:a:b", CLOSE),
    ],
)  # fmt: skip
def test_classes_are_compared_by_their_scores(first: str, second: str, expected: Likeness) -> None:
    """https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_classification.md"""
    assert likeness(text("BYTES", [first]), text("BYTES", [second])) == expected


@pytest.mark.parametrize("size", [-1, 5, 1 << 40, True, "4"])
def test_binary_data_that_are_missing_are_refused(size: Any) -> None:
    described = {"name": "Y", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": size}}
    head = json.dumps({"outputs": [described]}).encode()
    with pytest.raises(ValueError, match="an answer isn't Triton's"):
        outputs(head + (b"" if size is True else b"1234"), len(head))


def test_a_number_that_no_tensor_has_is_refused() -> None:
    huge = b'{"outputs": [{"name": "Y", "datatype": "FP32", "shape": [1], "data": [1%s]}]}' % (b"0" * 400)
    with pytest.raises(ValueError, match="an output can't be read"):
        compare(outputs(huge, None), outputs(*text("FP32", [1.5])))


def test_texts_of_another_number_are_different() -> None:
    one, two = ["a"], ["a", "b"]
    first, second = (
        binary("BYTES", serialize_byte_tensor(np.array(values, np.object_)).item(), [2]) for values in (one, two)
    )
    assert likeness(first, second) == likeness(second, first) == DIFFERENT
