"""Types and functions for the good repositories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from triton_repository_check.expected import Expected
from triton_repository_check.server_flags import ServerFlags

SERVER = (2, 51)
MIB = 2**20

Files = dict[str, str | bytes]


@dataclass(frozen=True)
class Good:
    """A repository without faults."""

    name: str
    title: str
    """The features of Triton that it uses."""
    files: Callable[[], Files]
    expected: Expected

    def write(self, root: Path) -> Path:
        """Writes the repository to `root`."""
        for file, content in self.files().items():
            path = root / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return root


def expected(entrypoint: str, **more: object) -> Expected:
    """Returns the expectations of a pod with two cores and no GPU, on server 2.51."""
    usual = {"shared_memory": 256 * MIB, "gpus": 0, "cpus": 2.0, "flags": ServerFlags(), "server": SERVER}
    return Expected(entrypoint=entrypoint, **{**usual, **more})  # type: ignore[arg-type]


def string(text: bytes) -> bytes:
    """Returns a string in the format of Triton's data files: after its length."""
    return len(text).to_bytes(4, "little") + text


HEAD = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
"""
ECHO = (
    HEAD
    + """\
    def execute(self, requests):
        responses = []
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", given)]))
        return responses
"""
)
ECHO_CONFIG = """\
backend: "python"
max_batch_size: 8
input [
  { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] }
]
output [
  { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] }
]
instance_group [ { kind: KIND_CPU } ]
"""
