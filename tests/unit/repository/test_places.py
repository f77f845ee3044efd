"""Line and column of each value, in every form of the text format."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from triton_repository_check.schema import ModelConfig
from triton_repository_check.textformat import parse
from unit.repository.gen import DETECT, NET, PRE


def at(text: str, *path: str | int) -> tuple[int, int, str]:
    node = parse(text)[1].find(*path)
    return node.line, node.column, node.text


@pytest.mark.parametrize(
    ("text", "path", "place"),
    [
        ('name: "a"', ("name",), (1, 7, "a")),
        ('# name: "b"\n\n  name : "a" # c', ("name",), (3, 10, "a")),
        ("name: 'it\\'s' 'more'", ("name",), (1, 7, "it'smore")),
        ("max_batch_size: 8; backend: 'x',", ("backend",), (1, 29, "x")),
        ("input { dims: [ 1, -1 ] }", ("input", 0, "dims", 1), (1, 20, "-1")),
        ("input { dims: 1 dims: -1 }", ("input", 0, "dims", 1), (1, 23, "-1")),
        ("input < dims: 1 >\ninput: { dims: 2 }", ("input", 1, "dims", 0), (2, 16, "2")),
        ("input [ { dims: 1 },\n { dims: 2 } ]", ("input", 1), (2, 2, "")),
        ("input { name: '}' }\ninput { name: 'b' }", ("input", 1, "name"), (2, 15, "b")),
        ("input [ ]\nname: 'a'", ("name",), (2, 7, "a")),
        (
            "parameters { key: 'a' value { string_value: 'x' } }",
            ("parameters", "a", "value", 0, "string_value"),
            (1, 45, "x"),
        ),
        (
            "parameters [ { key: 'a' value { } },\n { value { string_value: 'x' } key: 'b' } ]",
            ("parameters", "b", "value", 0, "string_value"),
            (2, 26, "x"),
        ),
    ],
)
def test_finds_the_position_of_a_value(text, path, place):
    assert parse(text)[0] == text_format.Parse(text, ModelConfig())
    assert at(text, *path) == place


def test_missing_value_has_the_position_of_its_parent():
    text = '\ninput { name: "a" }'
    assert at(text, "input", 0, "data_type")[:2] == (2, 1)
    assert at(text, "input", 3)[:2] == (1, 1)
    assert at(text, "output", 0, "name")[:2] == (1, 1)


@pytest.mark.parametrize("text", [PRE, NET, DETECT])
def test_reads_the_same_values_as_protobuf(text):
    config, tree = text_format.Parse(text, ModelConfig()), parse(text)[1]
    for side in ("input", "output"):
        tensors = getattr(config, side)
        assert [t.name for t in tensors] == [n.find("name").text for n in tree.fields[side]]
        assert [list(map(str, t.dims)) for t in tensors] == [
            [d.text for d in n.fields["dims"]] for n in tree.fields[side]
        ]
    steps = tree.find("ensemble_scheduling").fields.get("step", [])
    assert [s.model_name for s in config.ensemble_scheduling.step] == [n.find("model_name").text for n in steps]
