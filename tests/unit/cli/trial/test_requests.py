"""Requests made from a configuration: what they have, and what they say they are."""

from __future__ import annotations

import io

import numpy as np
import pytest
from google.protobuf import text_format
from PIL import Image
from tritonclient.grpc import model_config_pb2

from kubectl_triton.trial import requests
from kubectl_triton.trial.requests import Turn, made


def config(text: str):
    return text_format.Parse(text, model_config_pb2.ModelConfig())


NUMBERS = 'input [{name: "X", data_type: TYPE_FP32, dims: [2, 3]}] max_batch_size: 4'
TEXTS = 'input [{name: "T", data_type: TYPE_STRING, dims: [1]}, {name: "N", data_type: TYPE_INT64, dims: [-1]}]'
OPTIONAL = (
    'input [{name: "X", data_type: TYPE_FP32, dims: [1]}, {name: "A", data_type: TYPE_BOOL, dims: [1], optional: true},'
    ' {name: "B", data_type: TYPE_UINT8, dims: [1], optional: true}]'
)


def test_numbers_are_zeros_ones_and_random():
    made_requests = [made(config(NUMBERS), choice) for choice in requests.choices(config(NUMBERS))]
    assert [request.words for request in made_requests] == [
        "zeros, batch size 1", "ones, batch size 1", "random numbers, batch size 1",
    ]  # fmt: skip
    values = [request.inputs[0].values for request in made_requests]
    assert [array.shape for array in values] == [(1, 2, 3)] * 3
    assert {array.dtype for array in values} == {np.dtype(np.float32)}
    assert values[0].max() == 0
    assert values[1].min() == 1
    assert 0 <= values[2].min() < values[2].max() < 1


def test_texts_have_several_values_and_sizes():
    words = [made(config(TEXTS), choice).words for choice in requests.choices(config(TEXTS))]
    assert len(words) == len(set(words)) == 15
    assert words[0] == "zeros and empty strings, 8 in each variable dimension"
    first = made(config(TEXTS), next(iter(requests.choices(config(TEXTS)))))
    assert [tensor.values.shape for tensor in first.inputs] == [(1,), (8,)]
    assert first.inputs[0].values.tolist() == [b""]


def test_texts_are_empty_a_number_words_json_and_a_picture():
    sent = [made(config(TEXTS), choice).inputs[0].values.item() for choice in requests.choices(config(TEXTS))]
    *texts, picture = sent[:5]
    assert texts == [b"", b"1", b"some text", b"{}"]
    with Image.open(io.BytesIO(picture)) as read:
        assert (read.format, read.size) == ("PNG", (8, 8))
    assert len(picture) < 100


def test_variable_dimensions_are_8_1_and_32():
    model = config(NUMBERS.replace("2, 3", "-1, 3, -1"))
    shapes = [made(model, choice).inputs[0].values.shape for choice in requests.choices(model)]
    assert list(dict.fromkeys(shapes)) == [(1, 8, 3, 8), (1, 1, 3, 1), (1, 32, 3, 32)]
    assert len(shapes) == 9


def test_optional_inputs_are_left_out_together_and_alone():
    choice = next(iter(requests.choices(config(OPTIONAL))))
    without = [made(config(OPTIONAL), option) for option in requests.absences(config(OPTIONAL), choice)]
    assert [[tensor.name for tensor in request.inputs] for request in without] == [["X"], ["X", "B"], ["X", "A"]]
    assert without[0].words == "zeros, without A, B"
    assert list(requests.absences(config(NUMBERS), choice)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NUMBERS, [2, 4]),
        (NUMBERS.replace("4", "2"), [2]),
        (NUMBERS.replace("4", "1"), []),
        (TEXTS, []),
        # 64 MiB: 5 of 12 MiB.
        ('input [{name: "X", data_type: TYPE_FP32, dims: [1024, 3072]}] max_batch_size: 512', [2, 5]),
        ('input [{name: "X", data_type: TYPE_FP32, dims: [4096, 3072]}] max_batch_size: 512', []),
        (NUMBERS + " sequence_batching {}", []),
    ],
)
def test_batches_are_two_and_the_largest_that_can_be_sent(text, expected):
    choice = next(iter(requests.choices(config(text))))
    assert [option.batch for option in requests.batches(config(text), choice)] == expected


@pytest.mark.parametrize(
    ("text", "plain"), [(NUMBERS, True), (TEXTS, False), ("", True), (NUMBERS.replace("2, 3", "-1"), False)]
)
def test_only_fixed_shapes_of_numbers_are_plain(text, plain):
    assert requests.is_plain(config(text)) is plain


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (NUMBERS, ""),
        ("", ""),
        ('input [{name: "X", data_type: TYPE_FP32, dims: [1], is_shape_tensor: true}]', "the shape of another one"),
        ('input [{name: "X", dims: [1]}]', "the data type TYPE_INVALID"),
        ('input [{name: "X", data_type: TYPE_FP32}]', "doesn't say the shape"),
        ('input [{name: "X", data_type: TYPE_FP32, reshape {shape: []}}]', ""),
    ],
)
def test_says_why_no_request_can_be_made(text, why):
    assert why in requests.unmakeable(config(text))
    assert bool(why) is bool(requests.unmakeable(config(text)))


@pytest.mark.parametrize("kind", [
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16",
    "STRING",
])  # fmt: skip
def test_every_data_type_can_be_sent(kind):
    tritonclient = pytest.importorskip("tritonclient.grpc")
    model = config(f'input [{{name: "X", data_type: TYPE_{kind}, dims: [2]}}]')
    for choice in requests.choices(model):
        (tensor,) = made(model, choice).inputs
        item = tritonclient.InferInput("X", list(tensor.values.shape), tensor.kind)
        item.set_data_from_numpy(tensor.values)


def test_a_turn_is_kept():
    choice = next(iter(requests.choices(config(NUMBERS))))
    assert made(config(NUMBERS), choice, Turn(3, end=False)).turn == Turn(3, True, False)
