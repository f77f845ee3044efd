"""Parses config.pbtxt like Triton. The results of tritonserver 2.51 are the same as in these tests."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from corpus.good import GOOD
from support.growth import assert_linear
from triton_repository_check.schema import ModelConfig
from triton_repository_check.textformat import TextError, TooManyValuesError, parse

TEXTS = sorted({text for good in GOOD for name, text in good.files().items() if name.endswith(".pbtxt")})


@pytest.mark.parametrize("text", TEXTS)
def test_reads_the_same_as_protobuf(text):
    assert parse(text)[0] == text_format.Parse(text, ModelConfig())


KEY = 'parameters {{ key: {} value {{ string_value: "a" }} }}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max_batch_size: +8", "1:17"),
        ("max_batch_size: 0b1000", "1:17"),
        ("max_batch_size: 0o10", "1:17"),
        ("max_batch_size: 1_0", "1:17"),
        ("max_batch_size: ８", "1:17"),
        ("max_batch_size: 09", "1:17"),
        ("max_batch_size: 8.0", "1:17"),
        ("max_batch_size: 8input", "1:17"),
        ("max_batch_size: 9999999999", "1:17"),
        ("max_batch_size: '8'", "1:17"),
        ("max_batch_size:\u00a08", "1:16"),
        ("name: 'a'\u2028backend: 'b'", "1:10"),
        ("name: 'a'\u0085backend: 'b'", "1:10"),
        ("name: 'a'\x1cbackend: 'b'", "1:10"),
        ("name: 'a'\0", "1:10"),
        ("# a\0b\nname: 'a'", "1:4"),
        ("name: 'a\0'", "1:9"),
        (KEY.format(r'"\N"'), "1:20"),
        (KEY.format(r'"\e"'), "1:20"),
        (KEY.format(r'"\x"'), "1:20"),
        (KEY.format(r'"\X41"'), "1:20"),
        (KEY.format('"a\nb"'), "1:19"),
        ("dynamic_batching { max_queue_delay_microseconds: -1 }", "1:50"),
        ("response_cache { enable: 2 }", "1:26"),
        ("response_cache { enable: yes }", "1:26"),
        ("max_batch_size: 8,,", "1:19"),
        ("max_batch_size: 8 max_batch_size: 8", "1:19"),
        ("version_policy { latest { } all { } }", "1:29"),
        ("input { dims: [ 4, ] }", "1:20"),
        ("input { dims: [ 2 2 ] }", "1:19"),
        ("max_batch_size: [ 8 ]", "1:17"),
        ("max_batch_size 8", "1:16"),
        ("input 8", "1:7"),
        ("// no", "1:1"),
        ("[foo.bar]: 1", "1:1"),
        ("1: 2", "1:1"),
        ("\ufeffname: 'a'", "1:1"),
        ("input {", "1:8"),
        ("input { ]", "1:9"),
        ("}", "1:1"),
        ("name:", "1:6"),
        ('name: "a', "1:7"),
    ],
)
def test_rejects_what_the_server_rejects(text, expected):
    with pytest.raises(TextError) as error:
        parse(text)
    assert f"{error.value.line}:{error.value.column}" == expected, error.value


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("max_batch_size: 010", "max_batch_size", 8),
        ("max_batch_size: 0X8", "max_batch_size", 8),
        ("max_batch_size: - 1", "max_batch_size", -1),
        ("max_batch_size: 8;", "max_batch_size", 8),
        ("\fmax_batch_size:\v8#", "max_batch_size", 8),
        ("backend: 'pyt' \"hon\" # a\n '!'", "backend", "python!"),
        (r"backend: '\x61\142\u0063\U00000064\?\''", "backend", "abcd?'"),
        (r"backend: '\ud83d\ude00'", "backend", "\ufffd" * 6),
        (r"backend: '\400a'", "backend", "\0a"),
        ("backend: 'é'", "backend", "é"),
    ],
)
def test_accepts_what_the_server_accepts(text, field, value):
    assert getattr(parse(text)[0], field) == value


@pytest.mark.parametrize("value", ["1", "t", "True", "true", "0x1", "01"])
def test_parses_booleans(value):
    assert parse(f"response_cache {{ enable: {value} }}")[0].response_cache.enable


@pytest.mark.parametrize("value", ["0.5f", ".5", "5e-1", "0.5F"])
def test_parses_floats(value):
    text = f"sequence_batching {{ direct {{ minimum_slot_utilization: {value} }} }}"
    assert parse(text)[0].sequence_batching.direct.minimum_slot_utilization == 0.5


def test_parses_enum_values_by_number():
    assert parse("input { data_type: 0xb }")[0].input[0].data_type == 11
    with pytest.raises(TextError, match="has no value 99"):
        parse("input { data_type: 99 }")


MIB = 2**20
LARGE = {
    "inputs": 'input {{\n  name: "IN_{0}"\n  data_type: TYPE_FP32\n  dims: [ 3, 224, 224 ]\n}}\n',
    "parameters": 'parameters {{ key: "p{0}" value: {{ string_value: "the value of parameter number {0}" }} }}\n',
    "comments": "# {0} is the number of this line\n",
    "backslashes": 'parameters {{ key: "{0}" value {{ string_value: "' + "\\\\" * 500 + '" }} }}\n',
}


def filled(line: str, size: int) -> str:
    """Returns so many bytes of lines."""
    return "".join(line.format(n) for n in range(size // len(line.format(10_000))))


@pytest.mark.parametrize("line", LARGE.values(), ids=LARGE)
def test_twice_the_text_takes_twice_the_time(line):
    """Four MiB take half a second on an idle core. Protobuf takes ten seconds."""
    assert_linear(lambda size: filled(line, size), parse, 4 * MIB)


@pytest.mark.parametrize(
    "text", ["input{}", "input { dims: 1 }", "parameters{key:'{}'}"], ids=["messages", "numbers", "map"]
)
def test_stops_after_many_values(text):
    with pytest.raises(TooManyValuesError):
        parse(text * (4 * MIB // len(text)))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("input {{ dims: [ {} ] }}", ["1", "0x1", "- 1", "1 # one, or ]\n"]),
        ("sequence_batching {{ control_input {{ control {{ bool_false_true: [ {} ] }} }} }}", ["t", "false", "0"]),
        ("sequence_batching {{ control_input {{ control {{ fp32_false_true: [ {} ] }} }} }}", ["1", ".5e1f", "-inf"]),
    ],
    ids=["integers", "words", "floats"],
)
def test_a_list_of_twice_the_values_takes_twice_the_time(text, values):
    assert_linear(lambda size: text.format(", ".join(values * (size // len(values)))), parse, MIB)


def test_places_the_values_of_a_list_with_comments():
    config, where = parse("input { dims: [ 1, # 2, ]\n 3,-0x4 ] }")
    assert list(config.input[0].dims) == [1, 3, -4]
    places = [(node.line, node.column, node.text) for node in where.find("input", 0).fields["dims"]]
    assert places == [(1, 17, "1"), (2, 2, "3"), (2, 4, "-0x4")]


MALICIOUS = [
    ("", '"', ""), ("", "\\", ""), ("", "input { ", ""), ("", " ", "}"), ("", "-", ""), ("", "[", ""),
    ("name: '\\", "\\\\", "'"), ("a: ", "1", ""), ("max_batch_size: ", "1", ""), ("", "#", "\n}"),
    ("input { dims: [", "1 ", ""), ("input { dims: [", "-", ""), ("input { dims: [", "1,", ""),
]  # fmt: skip


@pytest.mark.parametrize(("begin", "part", "end"), MALICIOUS, ids=range(len(MALICIOUS)))
def test_rejects_malicious_texts_in_linear_time(begin, part, end):
    def reject(text):
        with pytest.raises(TextError):
            parse(text)

    assert_linear(lambda size: begin + part * size + end, reject, 100_000)


@pytest.mark.parametrize("row", ["4,", "4 4", ",4", "4,,4", "- 4 4", "4-4", "--4", "-", "09", "4, 4 ]["])
def test_rejects_a_list_of_numbers_that_the_server_rejects(row):
    with pytest.raises(TextError):
        parse(f"input {{ dims: [ {row} ] }}")


@pytest.mark.parametrize(
    ("row", "values"),
    [("", []), ("4", [4]), ("0,-0", [0, 0]), ("- 4,0x4", [-4, 4]), ("010 , 8", [8, 8]), ("1,# a\n2", [1, 2])],
)
def test_accepts_a_list_of_numbers_that_the_server_accepts(row, values):
    config, where = parse(f"input {{ dims: [{row}] }}")
    assert list(config.input[0].dims) == values
    assert len(where.find("input", 0).fields["dims"]) == len(values)
