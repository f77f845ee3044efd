"""Finds parameters and tensors that the backends refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.mutations import write
from support.onnx_file import FP32, INT64, model, value
from unit.repository.gen import findings

ONNX = model([value("a", FP32, [4])], [value("b", FP32, [4])])
SCRIPT = (Path(__file__).parent / "model_files/script.pt").read_bytes()
TENSORS = """\
input { name: "a" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "b" data_type: TYPE_FP32 dims: [ 4 ] }
"""


def findings_of(
    tmp_path: Path, backend: str, config: str, content: bytes = ONNX, server: tuple[int, int] | None = None
):
    name = {"onnxruntime": "model.onnx", "pytorch": "model.pt", "python": "model.py"}[backend]
    program = (
        b"import triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n"
        b"    def execute(self, requests):\n        return [self.f(request) for request in requests]\n"
    )
    write("m/1/" + name, {"python": program, "pytorch": SCRIPT}.get(backend, content))(tmp_path)
    write("m/config.pbtxt", f'backend: "{backend}"\n' + config)(tmp_path)
    reported = findings(tmp_path, server=server)
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
