"""Writes a valid model repository, with changes for tests."""

from __future__ import annotations

from pathlib import Path

from support import onnx_file
from support.mutations import Change, write
from triton_repository_check.check_table import judge
from triton_repository_check.expected import Expected
from triton_repository_check.findings import Finding
from triton_repository_check.load import load

MODEL_PY = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        pass

    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""

PRE = """\
name: "pre"
backend: "python"
max_batch_size: 8
input [
  { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] }
]
output [
  { name: "TENSOR" data_type: TYPE_FP32 dims: [ 3, 64, 64 ] },
  { name: "SCALE" data_type: TYPE_FP32 dims: [ 4 ] }
]
instance_group [ { count: 2 kind: KIND_CPU } ]
"""
NET = """\
backend: "onnxruntime"
max_batch_size: 8
input { name: "images" data_type: TYPE_FP32 dims: [ 3, 64, 64 ] }
output { name: "boxes" data_type: TYPE_FP32 dims: [ 100, 6 ] }
dynamic_batching { preferred_batch_size: [ 4, 8 ] }
"""
NETWORK = onnx_file.model(
    [onnx_file.value("images", onnx_file.FP32, ["n", 3, 64, 64])],
    [onnx_file.value("boxes", onnx_file.FP32, ["n", 100, 6])],
)
"""A model with the inputs and outputs of NET, and no nodes."""
DETECT = """\
platform: "ensemble"
max_batch_size: 8
input [ { name: "IMAGE" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "BOXES" data_type: TYPE_FP32 dims: [ 100, 6 ] },
         { name: "SCALE" data_type: TYPE_FP32 dims: [ 4 ] } ]
ensemble_scheduling {
  step [
    {
      model_name: "pre"
      model_version: -1
      input_map { key: "IMAGE" value: "IMAGE" }
      output_map { key: "TENSOR" value: "tensor" }
      output_map { key: "SCALE" value: "SCALE" }
    },
    {
      model_name: "net"
      model_version: -1
      input_map { key: "images" value: "tensor" }
      output_map { key: "boxes" value: "BOXES" }
    }
  ]
}
"""


def good(root: Path, *changes: Change) -> Path:
    """Writes pre (python) → net (onnxruntime), connected by detect. Then makes the changes in order."""
    for change in (
        write("pre/config.pbtxt", PRE),
        write("pre/1/model.py", MODEL_PY),
        write("net/config.pbtxt", NET),
        write("net/1/model.onnx", NETWORK),
        write("detect/config.pbtxt", DETECT),
        write("detect/1/.keep", ""),
        *changes,
    ):
        change(root)
    return root


def findings(root: Path, **expected: object) -> tuple[Finding, ...]:
    """Returns all findings of load and of the checks."""
    expectations = Expected(**expected)  # type: ignore[arg-type]
    repository, unreadable = load(root, request=expectations.health_request)
    return judge(repository, unreadable, expectations)


def brief(reported: tuple[Finding, ...]) -> list[str]:
    """Returns the findings in a short form for comparison, such as `error TR101 pre/config.pbtxt:7:3`."""
    return [
        f"{f.severity} {f.code} " + ":".join(str(p) for p in (f.file, f.line, f.column) if p is not None)
        for f in reported
    ]
