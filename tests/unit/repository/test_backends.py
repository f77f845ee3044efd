"""Finds parameters and tensors that the backends refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.mutations import write
from support.onnx_file import FP32, INT64, model, value
from unit.repository.gen import findings

ONNX = model([value("a", FP32, [4])], [value("b", FP32, [4])])
SCRIPT = (Path(__file__).parent / "model_files/script.pt").read_bytes()
VALUES = """\
input { name: "a" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "b" data_type: TYPE_FP32 dims: [ 1 ] }
"""
TENSORS = """\
input { name: "a" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "b" data_type: TYPE_FP32 dims: [ 4 ] }
"""


def findings_of(
    tmp_path: Path,
    backend: str,
    config: str,
    content: bytes = ONNX,
    server: tuple[int, int] | None = None,
    gpus: int | None = None,
):
    name = {
        "onnxruntime": "model.onnx", "pytorch": "model.pt", "python": "model.py", "fil": "xgboost.model",
    }[backend]  # fmt: skip
    program = (
        b"import triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n"
        b"    def execute(self, requests):\n        return [self.f(request) for request in requests]\n"
    )
    write("m/1/" + name, {"python": program, "pytorch": SCRIPT}.get(backend, content))(tmp_path)
    write("m/config.pbtxt", f'backend: "{backend}"\n' + config)(tmp_path)
    reported = findings(tmp_path, server=server, gpus=gpus)
    return [f"{f.severity} {f.code}" for f in reported if str(f.severity) != "note"]


def parameter(key: str, text: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{text}" }} }}\n'


@pytest.mark.parametrize(
    ("backend", "key", "text", "right"),
    [
        ("onnxruntime", "execution_mode", "1", True),
        ("onnxruntime", "execution_mode", "2", False),
        ("onnxruntime", "execution_mode", "parallel", False),
        ("onnxruntime", "intra_op_thread_count", " 4 threads", True),
        ("onnxruntime", "intra_op_thread_count", "four", False),
        ("onnxruntime", "intra_op_thread_count", "2147483647", True),
        ("onnxruntime", "intra_op_thread_count", "2147483648", False),
        ("onnxruntime", "inter_op_thread_count", "-2147483648", True),
        ("onnxruntime", "inter_op_thread_count", "-99999999999", False),
        ("onnxruntime", "inter_op_thread_count", "00000000000002", True),
        ("onnxruntime", "inter_op_thread_count", "9" * 5000, False),
        ("pytorch", "INTRA_OP_THREAD_COUNT", "99999999999", False),
        ("onnxruntime", "memory.enable_memory_arena_shrinkage", "cpu:0", True),
        ("onnxruntime", "memory.enable_memory_arena_shrinkage", "cpu;gpu:1;", True),
        ("onnxruntime", "memory.enable_memory_arena_shrinkage", "", True),
        ("onnxruntime", "memory.enable_memory_arena_shrinkage", "1", False),
        ("onnxruntime", "memory.enable_memory_arena_shrinkage", "cpu:1", False),
        ("onnxruntime", "memory.enable_memory_arena_shrinkage", "CPU:0", False),
        ("onnxruntime", "intra_op_thread_count", "", False),
        ("onnxruntime", "enable_mem_arena", "On", True),
        ("onnxruntime", "enable_mem_arena", "yes", False),
        ("onnxruntime", "anything", "else", True),
        ("python", "FORCE_CPU_ONLY_INPUT_TENSORS", "no", True),
        ("python", "FORCE_CPU_ONLY_INPUT_TENSORS", "false", False),
        ("pytorch", "INFERENCE_MODE", "TRUE", True),
        ("pytorch", "INFERENCE_MODE", "yes", False),
    ],
)
def test_backends_refuse_other_values_of_parameters(tmp_path, backend, key, text, right):
    config = TENSORS.replace('"a"', '"a__0"').replace('"b"', '"b__0"') if backend == "pytorch" else TENSORS
    assert findings_of(tmp_path, backend, config + parameter(key, text)) == ([] if right else ["error TR126"])


@pytest.mark.parametrize(
    ("side", "name", "told"),
    [
        ("cpu", "openvino", []),
        ("cpu", "tensorrt", ["error TR126"]),
        ("gpu", "tensorrt", []),
        ("gpu", "migraphx", ["warning TR126"]),
    ],
)
def test_onnxruntime_has_few_accelerators(tmp_path, side, name, told):
    more = f'optimization {{ execution_accelerators {{ {side}_execution_accelerator [ {{ name: "{name}" }} ] }} }}\n'
    assert findings_of(tmp_path, "onnxruntime", TENSORS + more) == told


SHRINK = "memory.enable_memory_arena_shrinkage"


@pytest.mark.parametrize(
    ("devices", "more", "gpus", "told"),
    [
        ("cpu:0", "", 0, []),
        ("cpu:0", parameter("enable_mem_arena", "1"), 0, []),
        ("cpu:0", parameter("enable_mem_arena", "off"), 0, ["error TR126"]),
        ("cpu:0", parameter("enable_mem_arena", "off"), 1, ["error TR126"]),
        ("gpu:0", parameter("enable_mem_arena", "off"), 1, []),
        ("gpu:0", "", 1, []),
        ("gpu:0", "", None, []),
        ("gpu:0", "", 0, ["warning TR126"]),
        ("gpu:0", "instance_group { kind: KIND_CPU }\n", 0, ["error TR126"]),
        ("cpu:0;gpu:0", "instance_group { kind: KIND_CPU }\n", 0, ["warning TR126"]),
        ("gpu:0;cpu:0", "instance_group { kind: KIND_CPU }\n", 0, ["error TR126"]),
    ],
)
def test_only_an_arena_can_shrink(tmp_path, devices, more, gpus, told):
    config = TENSORS + parameter(SHRINK, devices) + more
    assert [each for each in findings_of(tmp_path, "onnxruntime", config, gpus=gpus) if "TR126" in each] == told


@pytest.mark.parametrize(
    ("devices", "server", "told"),
    [
        ("cpu:0;gpu:0", (2, 59), ["error TR126"]),
        ("cpu:0;gpu:0", (2, 60), []),
        ("gpu:0;cpu:0", (2, 60), ["error TR126"]),
    ],
)
def test_newer_servers_need_only_the_first_arena(tmp_path, devices, server, told):
    config = TENSORS + parameter(SHRINK, devices) + "instance_group { kind: KIND_CPU }\n"
    assert findings_of(tmp_path, "onnxruntime", config, server=server, gpus=0) == told


ON_GPU = "instance_group { kind: KIND_GPU }\n"


def accelerator(name: str, side: str = "gpu", **parameters: str) -> str:
    text = "".join(f'parameters {{ key: "{key}" value: "{value}" }} ' for key, value in parameters.items())
    return f'optimization {{ execution_accelerators {{ {side}_execution_accelerator {{ name: "{name}" {text}}} }} }}\n'


@pytest.mark.parametrize(
    ("name", "key", "value", "right"),
    [
        ("tensorrt", "precision_mode", "FP16", True),
        ("tensorrt", "precision_mode", "INT8", True),
        ("tensorrt", "precision_mode", "BF16", True),
        ("tensorrt", "precision_mode", "${precision}", True),  # another check reports placeholders
        ("tensorrt", "precision_mode", "fp16", False),
        ("tensorrt", "precision_mode", "", False),
        ("tensorrt", "max_workspace_size_bytes", "1073741824", True),
        ("tensorrt", "max_workspace_size_bytes", "1G", True),  # the backend reads 1
        ("tensorrt", "max_workspace_size_bytes", "max", False),
        ("tensorrt", "trt_builder_optimization_level", " 5", True),
        ("tensorrt", "trt_builder_optimization_level", "high", False),
        ("tensorrt", "trt_engine_cache_enable", "True", True),
        ("tensorrt", "trt_engine_cache_enable", "yes", False),
        ("tensorrt", "trt_profile_min_shapes", "a:1x3", True),
        ("tensorrt", "trt_fp16_enable", "1", False),  # a name of ONNX Runtime, but not of the backend
        ("tensorrt", "max_workspace_size", "1", False),
        ("cuda", "do_copy_in_default_stream", "off", True),
        ("cuda", "do_copy_in_default_stream", "no", False),
        ("cuda", "cudnn_conv_algo_search", "HEURISTIC", True),
    ],
)
def test_accelerators_refuse_other_parameters(tmp_path, name, key, value, right):
    told = findings_of(tmp_path, "onnxruntime", TENSORS + ON_GPU + accelerator(name, **{key: value}))
    assert [line for line in told if "TR129" not in line] == ([] if right else ["error TR134"])


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("trt_fp16_enable", "did you mean 'precision_mode'?"),
        ("trt_dla_core_", "did you mean 'trt_dla_core'?"),
        ("device", "remove it"),
    ],
)
def test_names_the_parameter_of_an_accelerator(tmp_path, key, remedy):
    findings_of(tmp_path, "onnxruntime", TENSORS + ON_GPU + accelerator("tensorrt", **{key: "1"}))
    [told] = [finding for finding in findings(tmp_path) if finding.code == "TR134"]
    assert (told.file, told.line, told.remedy) == ("m/config.pbtxt", 5, remedy)


@pytest.mark.parametrize(
    ("more", "gpus", "told"),
    [
        (ON_GPU, None, ["error TR134"]),
        ("", 1, ["error TR134"]),
        ("", None, ["warning TR134"]),
        ("", 0, []),
        ("instance_group { kind: KIND_CPU }\n", 1, []),
    ],
)
def test_accelerators_of_gpus_are_read_only_on_gpus(tmp_path, more, gpus, told):
    config = TENSORS + more + accelerator("tensorrt", precision_mode="half")
    assert findings_of(tmp_path, "onnxruntime", config, gpus=gpus) == told


@pytest.mark.parametrize(("server", "told"), [((2, 65), ["error TR134"]), ((2, 66), []), (None, [])])
def test_newer_servers_take_bf16(tmp_path, server, told):
    config = TENSORS + ON_GPU + accelerator("tensorrt", precision_mode="BF16")
    assert findings_of(tmp_path, "onnxruntime", config, server=server) == told


def test_the_backend_ignores_parameters_of_openvino(tmp_path):
    assert findings_of(tmp_path, "onnxruntime", TENSORS + accelerator("openvino", "cpu")) == []
    more = accelerator("openvino", "cpu", num_of_threads="4")
    assert findings_of(tmp_path, "onnxruntime", TENSORS + more) == ["warning TR134"]


@pytest.mark.parametrize(
    ("path", "enable", "told"),
    [
        ("/models/m/cache", "true", ["warning TR134"]),
        ("/models/cache", "1", ["warning TR134"]),
        ("/models/m/cache", "false", []),
        ("/models/m/engines", "true", []),  # may have engines that were built before
        ("/models/../cache", "true", []),
        ("/modelscache", "true", []),
        ("/tmp/cache", "true", []),
        ("/data/cache", "on", []),
        ("cache", "true", []),
    ],
)
def test_engines_cannot_be_kept_in_the_repository(tmp_path, path, enable, told):
    write("m/engines/a.engine", b"x")(tmp_path)
    more = accelerator("tensorrt", trt_engine_cache_enable=enable, trt_engine_cache_path=path)
    assert findings_of(tmp_path, "onnxruntime", TENSORS + ON_GPU + more) == told


STATE = 'sequence_batching { state { input_name: "%s" output_name: "%s" data_type: TYPE_FP32 dims: [ 4 ] } }\n'


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (TENSORS, []),
        (TENSORS.partition("output")[0], ["error TR127"]),
        (TENSORS.replace("TYPE_FP32", "TYPE_UINT16", 1), ["error TR127"]),
        (TENSORS.replace("TYPE_FP32", "TYPE_STRING", 1), []),
        ("max_batch_size: 8\n" + TENSORS.replace("TYPE_FP32", "TYPE_STRING", 1), ["error TR127"]),
        ('runtime: "model.py"\n' + TENSORS.replace("TYPE_FP32", "TYPE_UINT16", 1), []),
        (TENSORS + STATE % ("s__1", "s__1"), []),
        (TENSORS + STATE % ("before", "after"), ["error TR127"]),
    ],
)
def test_pytorch_takes_few_tensors(tmp_path, config, told):
    assert findings_of(tmp_path, "pytorch", config) == told


CONTROL = 'sequence_batching { control_input { name: "%s" control { kind: CONTROL_SEQUENCE_START %s: [ 0, 1 ] } } }\n'


@pytest.mark.parametrize(
    ("name", "field", "shape", "told"),
    [
        ("c", "fp32_false_true", [1], []),
        ("c", "int32_false_true", [1], ["error TR604"]),
        ("c", "fp32_false_true", [2], ["error TR605"]),
        ("c", "fp32_false_true", [1, 1], ["error TR605"]),
        ("x", "fp32_false_true", [1], ["error TR602", "error TR603"]),
    ],
)
def test_onnx_needs_the_controls_of_sequences(tmp_path, name, field, shape, told):
    content = model([value("a", FP32, [4]), value("c", FP32, shape)], [value("b", FP32, [4])])
    assert sorted(findings_of(tmp_path, "onnxruntime", TENSORS + CONTROL % (name, field), content)) == told


@pytest.mark.parametrize(
    ("server", "ir_version", "opset", "told"),
    [
        ((2, 51), 10, 21, []),
        ((2, 51), 11, 21, ["error TR610"]),
        ((2, 51), 10, 22, ["warning TR610"]),
        ((2, 56), 10, 22, []),
        ((2, 60), 11, 23, []),
        ((2, 66), 13, 25, []),
        ((2, 80), 99, 99, []),  # newer than the table
        ((2, 40), 99, 99, []),  # older than the table
        (None, 99, 99, []),
    ],
)
def test_the_servers_onnx_runtime_may_be_too_old(tmp_path, server, ir_version, opset, told):
    content = model([value("a", FP32, [4])], [value("b", FP32, [4])], ir_version=ir_version, opset=opset)
    assert findings_of(tmp_path, "onnxruntime", TENSORS, content, server) == told


@pytest.mark.parametrize(("server", "told"), [((2, 66), ["error TR610"]), ((2, 67), []), (None, ["warning TR610"])])
def test_older_servers_do_not_take_bfloat16(tmp_path, server, told):
    of_both = model([value("a", 16, [4])], [value("b", 16, [4])])
    assert findings_of(tmp_path, "onnxruntime", TENSORS.replace("FP32", "BF16"), of_both, server) == told
    assert findings_of(tmp_path, "onnxruntime", "", of_both, server) == told
    more = model([value("a", FP32, [4])], [value("b", FP32, [4]), value("c", 16, [4])])
    assert findings_of(tmp_path, "onnxruntime", TENSORS, more, server) == [], "the server doesn't read it"
    assert findings_of(tmp_path, "onnxruntime", "", more, server) == told


@pytest.mark.parametrize(
    ("config", "shape", "told"),
    [
        ("max_batch_size: 8\n", ["n", 4], []),
        ("max_batch_size: 8\n", [1, 4], ["error TR606"]),
        ("", [1, 4], []),
        ('max_batch_size: 8\ninput { name: "a" data_type: TYPE_FP32 dims: [ 4 ] }\n', [1, 4], ["error TR606"]),
    ],
)
def test_onnx_runtime_completes_only_networks_with_batches(tmp_path, config, shape, told):
    content = model([value("a", FP32, ["n", 4])], [value("b", FP32, shape), value("c", INT64, ["n"])])
    assert findings_of(tmp_path, "onnxruntime", config, content) == told


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/models/llm/1", []),
        ("/models/llm/1/rank0.engine", []),
        ("/models/tokenizer", []),
        ("/models/llm/engines", ["TR209"]),
        ("/models/tokenizers", ["TR209"]),
        ("/mnt/engines", []),  # of a volume, or of the server image
        ("${engine_dir}", []),  # another check reports placeholders
    ],
)
def test_finds_directories_of_engines_that_are_not_in_the_repository(tmp_path: Path, path: str, expected: list[str]):
    write("llm/config.pbtxt", 'backend: "tensorrtllm"\n' + parameter("gpt_model_path", path))(tmp_path)
    write("llm/1/rank0.engine", b"engine")(tmp_path)
    write("tokenizer/tokenizer.json", "{}")(tmp_path)
    assert [f.code for f in findings(tmp_path) if f.code == "TR209"] == expected


HERE = "$$TRITON_MODEL_DIRECTORY"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"{HERE}/env", []),
        (f"{HERE}/./env", []),
        (f"{HERE}/../shared.tar.gz", []),
        ("/models/shared.tar.gz", []),
        ("/opt/env.tar.gz", []),  # of the server image
        ("${env}", []),  # another check reports placeholders
        ("", []),
        (f"{HERE}", ["error TR209 py/bin/activate"]),
        (f"{HERE}\\\\env", ["error TR209 py\\env"]),
        (f"/srv/{HERE}/env", []),  # Triton opens /srv//models/py
        ("./env", [f"error TR209 write '{HERE}/env'"]),
        ("env/../../py/env", [f"warning TR209 add the file to py/, and write {HERE}/ and its name"]),
        ("envs/a.tar.gz", [f"warning TR209 add the file to py/, and write {HERE}/ and its name"]),
        ("s3://bucket/env.tar.gz", [f"warning TR209 add the file to py/, and write {HERE}/ and its name"]),
        ("C:/env.tar.gz", [f"error TR209 add the file to py/, and write {HERE}/ and its name"]),
        (f"{HERE}/pointer.tar.gz", ["error TR211 run git lfs pull, then rebuild the image"]),
        (f"{HERE}/text.tar.gz", ["error TR801 make it with conda-pack or tar czf"]),
        (f"{HERE}/packed", []),
        (f"{HERE}/plain.tar", []),
    ],
)  # fmt: skip
def test_judges_the_path_of_an_environment_of_python(tmp_path: Path, path: str, expected: list[str]):
    write("py/config.pbtxt", 'backend: "python"\n' + parameter("EXECUTION_ENV_PATH", path))(tmp_path)
    for file, content in {
        "env/bin/activate": b"", "pointer.tar.gz": b"version https://git-lfs.github.com/spec/v1\n", "text.tar.gz": b"x",
        "packed": b"\x1f\x8b", "plain.tar": bytes(512), "../shared.tar.gz": b"\x1f\x8b",
    }.items():  # fmt: skip
        write(f"py/{file}", content)(tmp_path)
    found = [f for f in findings(tmp_path) if f.code in ("TR209", "TR211", "TR801")]
    ends = [f.message.partition(", but ")[2].removesuffix(" doesn't exist") or f.remedy for f in found]
    assert [f"{f.severity} {f.code} {end}" for f, end in zip(found, ends, strict=True)] == expected


@pytest.mark.parametrize(
    ("content", "dims", "told"),
    [
        (b"a\nb\nc\n", "3", ""),
        (b"a\nb\nc", "1, 3, 1", ""),
        (b"a\n\nc\n", "3", ""),
        (b"a\nb\n", "2, 3", ""),  # boxes by classes
        (b"a\n", "-1", ""),
        (b"a\n", "1", ""),
        (b"", "3", "output 'OUT' has 3 elements, but only the first 0 have a label"),
        (b"a\nb", "3, 1", "output 'OUT' has 3 elements, but only the first 2 have a label"),
        ("猫\n狗\n鸟\n".encode(), "3", ""),
        (b"a\nb\n\xb0\xa1\n", "3", "line 3 isn't UTF-8, so that an answer in JSON with this label can't be read"),
        (b"a\nb\nc\xe7", "3", "line 3 isn't UTF-8, so that an answer in JSON with this label can't be read"),
        (b"\xef\xbb\xbfa", "3", "the file begins with a byte order mark, which is part of the first label in answers"),
        ("a\nb".encode("utf-16-be"), "3",
         "the file is UTF-16, so that answers have the bytes of a label up to the first null byte"),
        (b"ab\xe7\x8c\xab\n" * 43691, "300000", ""),  # too large to count, cut inside a character
        (b"\n" + b"a" * 2**18 + b"\xff", "3", ""),
    ],
)  # fmt: skip
def test_judges_the_text_of_labels(tmp_path: Path, content: bytes, dims: str, told: str):
    text = f'backend: "python"\noutput {{ name: "OUT" data_type: TYPE_FP32 dims: [ {dims} ] label_filename: "l" }}\n'
    write("py/config.pbtxt", text)(tmp_path)
    write("py/l", content)(tmp_path)
    found = [f for f in findings(tmp_path) if f.code == "TR208"]
    assert [(f.severity, f.file, f.message) for f in found] == ([("warning", "py/l", told)] if told else [])


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("max_batch_size: 8\n" + VALUES, ["warning TR606"]),
        ("max_batch_size: 8\n" + VALUES[VALUES.index("output") :], ["error TR606"]),
        (VALUES.replace("[ 1 ]", "[ -1, 1 ]", 1), []),
    ],
)
def test_a_single_value_has_no_batch(tmp_path, config, told):
    content = model([value("a", FP32, ["n", 1])], [value("b", FP32, [])])
    assert findings_of(tmp_path, "onnxruntime", config, content) == told


@pytest.mark.parametrize(
    ("backend", "groups", "gpus", "told"),
    [
        ("tensorrt", "instance_group { kind: KIND_CPU }", 1, ["error TR133"]),
        ("tensorrt", "instance_group { kind: KIND_MODEL }", None, ["error TR133"]),
        ("tensorrt", "instance_group { count: 2 }", None, []),
        ("tensorrt", "instance_group { count: 2 }", 0, ["warning TR133"]),
        ("tensorrt", "", 0, ["warning TR133"]),
        ("tensorrt", "", 1, []),
        ("openvino", "instance_group { kind: KIND_GPU }", 1, ["error TR133"]),
        ("openvino", "instance_group { kind: KIND_CPU }", 1, []),
        ("openvino", "instance_group { count: 2 }", 1, ["warning TR133"]),
        ("openvino", "instance_group { count: 2 }", None, []),
        ("openvino", "", 1, []),
    ],
)
def test_backends_take_one_kind_of_instances(tmp_path, backend, groups, gpus, told):
    files = {"tensorrt": {"model.plan": b"ftrt"}, "openvino": {"model.xml": b"<net></net>", "model.bin": b"0"}}
    for name, content in files[backend].items():
        write("m/1/" + name, content)(tmp_path)
    write("m/config.pbtxt", f'backend: "{backend}"\n{TENSORS}{groups}\n')(tmp_path)
    reported = findings(tmp_path, gpus=gpus)
    assert [f"{f.severity} {f.code}" for f in reported if str(f.severity) != "note"] == told


FOREST = """\
max_batch_size: 8
input { name: "input__0" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "output__0" data_type: TYPE_FP32 dims: [ 1 ] }
"""
OLD, NEW = (2, 51), (2, 61)


@pytest.mark.parametrize(
    ("parameters", "server", "told"),
    [
        ({"output_class": "false"}, None, []),
        ({"output_class": "false"}, OLD, []),
        ({"output_class": "false"}, NEW, []),
        ({"is_classifier": "false"}, None, []),
        ({"is_classifier": "false"}, NEW, []),
        ({"is_classifier": "false"}, OLD, ["error TR803"]),
        ({}, None, ["error TR803"]),
        ({"output_class": "1"}, None, ["error TR803"]),
        ({"output_class": "True"}, NEW, ["error TR803"]),
        ({"output_class": "maybe", "is_classifier": "false"}, NEW, []),
        ({"output_class": "${x}"}, None, []),
        ({"output_class": "true"}, None, ["error TR803"]),
        ({"output_class": "true", "threshold": "half"}, None, ["error TR803"]),
        ({"output_class": "true", "threshold": "${x}"}, None, []),
        ({"output_class": "true", "threshold": " -.5"}, None, []),
        ({"is_classifier": "true", "threshold": "1"}, NEW, []),
        ({"output_class": "false", "threshold": "half"}, None, []),
        ({"output_class": "false", "model_type": "lightgbm"}, None, []),
        ({"output_class": "false", "model_type": "xgboost "}, OLD, []),
        ({"output_class": "false", "model_type": ""}, OLD, []),
        ({"output_class": "false", "model_type": "sklearn"}, None, ["error TR803"]),
        ({"output_class": "false", "model_type": "${x}"}, None, []),
        ({"output_class": "false", "predict_proba": "true"}, NEW, []),
        ({"output_class": "false", "predict_proba": "True"}, NEW, ["error TR803"]),
        ({"output_class": "false", "predict_proba": "1"}, None, ["warning TR803"]),
        ({"output_class": "false", "predict_proba": "1"}, (2, 30), []),
        ({"output_class": "false", "xgboost_allow_unknown_field": "yes"}, (2, 38), []),
        ({"output_class": "false", "xgboost_allow_unknown_field": "yes"}, (2, 39), ["error TR803"]),
        ({"output_class": "false", "chunk_size": "x", "storage_type": "DENSE", "mine": "1"}, None, []),
    ],
)
def test_the_fil_backend_takes_few_parameters(tmp_path, parameters, server, told):
    for name in ("model.txt", "xgboost.model"):
        write(f"m/1/{name}", b"x")(tmp_path)
    config = FOREST + "".join(parameter(*entry) for entry in parameters.items())
    assert [line for line in findings_of(tmp_path, "fil", config, server=server) if "TR129" not in line] == told


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"input__0"', '"X"', ["error TR803"]),
        ('"output__0"', '"Y"', ["error TR803"]),
        ('"input__0" data_type: TYPE_FP32', '"input__0" data_type: TYPE_FP64', ["error TR803"]),
        ('"output__0" data_type: TYPE_FP32', '"output__0" data_type: TYPE_INT64', []),
        ("output {", 'output { name: "treeshap_output" data_type: TYPE_FP32 dims: [ 5 ] }\noutput {', []),
        ("input {", 'input { name: "more" data_type: TYPE_INT32 dims: [ 5 ] }\ninput {', []),
    ],
)
def test_the_fil_backend_needs_the_names_of_its_tensors(tmp_path, old, new, told):
    config = FOREST.replace(old, new) + parameter("output_class", "false")
    assert findings_of(tmp_path, "fil", config) == told


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        (["INPUT__0"], []),
        (["INPUT__0", "INPUT__1"], []),
        (["b__1", "a__0"], []),
        (["a__", "b__01"], []),  # no number is 0
        (["x", "y"], []),
        (["x", "INPUT__2"], []),  # in the order of config.pbtxt
        (["INPUT__0", "a__b__2"], []),  # the backend looks for the first __
        (["INPUT__0", "INPUT__2"], ["warning TR804"]),
        (["INPUT__1"], ["warning TR804"]),
        (["INPUT__0", "MASK__0"], ["warning TR804"]),
    ],
)
@pytest.mark.parametrize("runtime", ["", 'runtime: "model.py"\n'])
def test_the_numbers_of_inputs_of_pytorch_have_no_gap(tmp_path, inputs, told, runtime):
    config = "".join(f'input {{ name: "{name}" data_type: TYPE_FP32 dims: [ 4 ] }}\n' for name in inputs)
    output = 'output { name: "OUTPUT__3" data_type: TYPE_FP32 dims: [ 4 ] }\n'
    assert findings_of(tmp_path, "pytorch", runtime + config + output) == ([] if runtime else told)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (CONTROL % ("START__1", "fp32_false_true"), []),
        (CONTROL % ("START__2", "fp32_false_true"), ["warning TR804"]),
        (STATE % ("s__1", "s__4"), []),
        (STATE % ("s__2", "s__1"), ["warning TR804"]),
    ],
)
def test_controls_and_states_of_pytorch_are_numbered_with_the_inputs(tmp_path, more, told):
    assert findings_of(tmp_path, "pytorch", TENSORS.replace('"a"', '"a__0"') + more) == told
