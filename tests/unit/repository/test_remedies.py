"""A known mistake in config.pbtxt gets its right form as the remedy."""

from __future__ import annotations

import pytest

from support.mutations import edit, write
from unit.repository.gen import DETECT, NET, PRE, brief, findings, good

SAMPLE = """\
backend: "python"
max_batch_size: 8
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""

HABITS = {
    "// my model\n" + SAMPLE: "begin comments with #",
    '{\n  "backend": "python",\n  "max_batch_size": 8\n}\n': "write protobuf text instead of JSON",
    SAMPLE.replace("TYPE_FP32 dims", "TYPE_FLOAT32 dims", 1): "did you mean TYPE_FP32?",
    SAMPLE.replace("TYPE_FP32 dims", "FP32 dims", 1): "did you mean TYPE_FP32?",
    SAMPLE.replace("TYPE_FP32 dims", "TYPE_BYTES dims", 1): "did you mean TYPE_STRING?",
    SAMPLE.replace("TYPE_FP32 dims", "float64 dims", 1): "did you mean TYPE_FP64?",
    SAMPLE.replace("TYPE_FP32 dims", "TYPE_COMPLEX dims", 1): "use one of TYPE_BOOL",
    SAMPLE.replace("TYPE_FP32 dims", '"TYPE_FP32" dims', 1): "write TYPE_FP32 without quotes",
    SAMPLE.replace("TYPE_FP32 dims", '"FP32" dims', 1): "write TYPE_FP32 without quotes",
    SAMPLE + "instance_group [ { kind: GPU } ]\n": "did you mean KIND_GPU?",
    SAMPLE + "decoupled: true\n": "decoupled belongs into model_transaction_policy { … }",
    SAMPLE + "reshape { shape: [ 4 ] }\n": "reshape belongs into input { … } or output { … }",
    SAMPLE + "max_queue_delay_microseconds: 100\n": "belongs into dynamic_batching { … }",
    SAMPLE + "sequence batching { }\n": "write sequence_batching, with an underscore",
    SAMPLE + "dynamic_batchin { }\n": "did you mean 'dynamic_batching'?",
    SAMPLE.replace("[ 4 ] } ]", "[ 4, ] } ]", 1): "remove the comma after the last value",
    SAMPLE.replace("[ 4 ] } ]", "[ 4 ] }, ]", 1): "remove the comma after the last element",
    SAMPLE + 'parameters { key: "a" value: "0.5" }\n': 'write value: { string_value: "0.5" }',
    SAMPLE.replace("size: 8", 'size: "8"'): "write 8 without quotes",
    SAMPLE.replace('"python"', "python"): 'write "python" in quotes',
    SAMPLE.replace("size: 8", "size = 8"): "write a colon instead of =",
    SAMPLE.replace('name: "IN"', 'name "IN"'): "write name: …",
    SAMPLE.replace('{ name: "IN"', '{ "name": "IN"'): "write the names of fields without quotes",
    SAMPLE + "model_transaction_policy { decoupled: yes }\n": "write true or false",
    SAMPLE.replace("max_batch_size: 8", "max_batch_size: [ 8 ]"): "remove the brackets",
    SAMPLE + "max_batch_size: 4\n": "keep one of them",
    SAMPLE + "dynamic_batching {\n": "add the missing closing brackets",
    SAMPLE + "dynamic_batching": "write dynamic_batching { }",
    SAMPLE + "version_policy { all }\n": "write all { }",
    SAMPLE + 'parameters { "a": "b" }\n': 'write key: "a" value: { string_value: "…" }',
    SAMPLE + 'parameters { a: "b" }\n': 'write key: "a" value: { string_value: "…" }',
    SAMPLE + 'ensemble_scheduling { step { input_map { "A": "B" } } }\n': 'write key: "A" value: "…"',
    SAMPLE + 'ensemble_scheduling { step { model: "a" } }\n': "did you mean 'model_name'?",
    SAMPLE + "dynamic_batching { max_queue_delay: 1 }\n": "did you mean 'max_queue_delay_microseconds'?",
    SAMPLE.replace("dims: [ 4 ]", "shape: [ 4 ]", 1): "did you mean 'dims'?",
    SAMPLE.replace("dims: [ 4 ]", "dims: { 4 }", 1): "write dims: [ … ]",
    SAMPLE.replace("dims: [ 4 ]", "dims: [ 4 4 ]", 1): "write a comma between two elements",
    SAMPLE.replace("dims: [ 4 ]", "dims: [ 4", 1): "add the missing ] before it",
    SAMPLE.replace("max_batch_size", "max-batch-size"): "write max_batch_size, with underscores",
    SAMPLE.replace('"python"', "“python”"): "write straight quotes",
    SAMPLE.replace('"python"', '"python'): "add the closing quote",
    SAMPLE.replace(": 8", ":\u00a08"): "replace this character, which looks like a space, by a space",
    SAMPLE + "}\n": "remove the }, which closes nothing",
    "\ufeff" + SAMPLE: "without a byte order mark",
}


@pytest.mark.parametrize(("text", "remedy"), HABITS.items(), ids=HABITS.values())
def test_a_known_mistake_gets_its_right_form(tmp_path, text, remedy):
    [finding] = [f for f in findings(good(tmp_path, write("pre/config.pbtxt", text))) if f.code in ("TR101", "TR102")]
    assert remedy in finding.remedy, finding


def test_bytes_that_are_not_utf_8_are_legal_in_comments_and_told_in_values(tmp_path):
    chinese = "# 图片\n" + PRE.replace("]\noutput", ']  # 图片 "\noutput')
    assert findings(good(tmp_path / "a", write("pre/config.pbtxt", chinese.encode("gbk")))) == ()
    latin = PRE + 'parameters { key: "a" value { string_value: "caf\xe9" } }\n'
    reported = findings(good(tmp_path / "b", write("pre/config.pbtxt", latin.encode("latin-1"))))
    assert brief(reported) == ["warning TR130 pre/config.pbtxt:12:45"]
    reported = findings(good(tmp_path / "c", write("pre/config.pbtxt", PRE.replace("8", "\xe9").encode("latin-1"))))
    assert brief(reported)[0] == "error TR101 pre/config.pbtxt:3:17"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_named(tmp_path, encoding):
    reported = findings(good(tmp_path, write("pre/config.pbtxt", PRE.encode(encoding))))
    assert brief(reported)[0] == "error TR101 pre/config.pbtxt:1:1"
    assert "UTF-16" in reported[0].message
    assert "save it as UTF-8" in reported[0].remedy


PARAMETER = 'parameters {{ key: "{}" value {{ string_value: "{}" }} }}\n'


@pytest.mark.parametrize(
    ("change", "expected", "names"),
    {
        "number": (
            edit("pre/config.pbtxt", "size: 8", "size: ${size}"),
            "error TR129 pre/config.pbtxt:3:17",
            "${size}",
        ),
        "two": (
            write("net/config.pbtxt", NET.replace("size: 8", "size: ${a}").replace('"boxes"', '"${b:-x}" # ${c}')),
            "error TR129 net/config.pbtxt:2:17",
            "${a}, ${b:-x}",
        ),
        "Helm": (
            edit("pre/config.pbtxt", "size: 8", "size: {{ .Values.size }}"),
            "error TR129 pre/config.pbtxt:3:17",
            "{{ .Values.size }}",
        ),
        "backend": (edit("net/config.pbtxt", "onnxruntime", "${b}"), "error TR129 net/config.pbtxt:1:10", "${b}"),
        "bare number": (
            edit("pre/config.pbtxt", "size: 8", "size: $SIZE"),
            "error TR129 pre/config.pbtxt:3:17",
            "$SIZE",
        ),
        "Jinja": (
            edit("pre/config.pbtxt", "size: 8", "size: {{ size }}"),
            "error TR129 pre/config.pbtxt:3:17",
            "{{ size }}",
        ),
        "condition": (
            write("pre/config.pbtxt", PRE + "{{- if .Values.gpu }}\n{{- end }}\n"),
            "error TR129 pre/config.pbtxt:12:1",
            "{{- if .Values.gpu }}, {{- end }}",
        ),
        "bare backend": (edit("net/config.pbtxt", "onnxruntime", "$B"), "error TR129 net/config.pbtxt:1:10", "$B"),
        "labels": (
            edit("pre/config.pbtxt", '"SCALE"', '"SCALE" label_filename: "${l}"'),
            "error TR129 pre/config.pbtxt:9:35",
            "${l}",
        ),
        "parameter of the backend": (
            write("pre/config.pbtxt", PRE + PARAMETER.format("FORCE_CPU_ONLY_INPUT_TENSORS", "${f}")),
            "error TR129 pre/config.pbtxt:12:72",
            "${f}",
        ),
        "environment": (
            write("pre/config.pbtxt", PRE + PARAMETER.format("EXECUTION_ENV_PATH", "${e}")),
            "error TR129 pre/config.pbtxt:12:62",
            "${e}",
        ),
        "file by GPU": (
            write("net/config.pbtxt", NET + 'cc_model_filenames { key: "8.0" value: "${f}" }\n'),
            "warning TR129 net/config.pbtxt:6:40",
            "${f}",
        ),
        "name": (edit("pre/config.pbtxt", '"pre"', '"${n}"'), "error TR129 pre/config.pbtxt:1:7", "${n}"),
        "step": (
            write("detect/config.pbtxt", DETECT.replace('model_name: "net"', 'model_name: "${n}"')),
            "error TR129 detect/config.pbtxt:16:19",
            "${n}",
        ),
        "parameter": (
            write("pre/config.pbtxt", PRE + 'parameters { key: "a" value { string_value: "${a}/${b}" } }\n'),
            "warning TR129 pre/config.pbtxt:12:45",
            "${a}, ${b}",
        ),
    }.values(),
)
def test_placeholders_of_a_template_are_one_finding(tmp_path, change, expected, names):
    model = expected.split()[2].split("/")[0]
    reported = [f for f in findings(good(tmp_path, change)) if f.model == model]
    assert brief(tuple(reported)) == [expected]
    assert reported[0].message.endswith(f": {names}")
    assert reported[0].remedy == "fill the template"


@pytest.mark.parametrize(
    "value",
    ["$HOME", "$$TRITON_MODEL_DIRECTORY/a", "{{ m.content }}", "a {{ message }} b", "{% for x in y %}", "100 $"],
)
def test_other_texts_with_dollars_and_braces_are_legal(tmp_path, value):
    text = PRE + f'parameters {{ key: "a" value {{ string_value: "{value}" }} }}\n'
    assert findings(good(tmp_path, write("pre/config.pbtxt", text))) == ()
