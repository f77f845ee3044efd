"""What a real Triton that sees no GPU says of itself: where it runs models, and its version."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_images.support import SERVER_IMAGE, Server, docker, serving
from support import onnx_file
from triton_operator.probe import fetch
from triton_operator.probe.placement import runs_on_cpu
from triton_operator.probe.triton import server_version
from triton_repository_check.expected import Expected
from triton_repository_check.load import load
from triton_repository_check.report import report

pytestmark = pytest.mark.server

VALUE = onnx_file.value("x", onnx_file.FP32, ["n", 4])
ONNX = onnx_file.model([VALUE], [VALUE])
PYTHON = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""
TENSORS = """
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
MODELS: dict[str, tuple[str, str | None, bool]] = {
    "bare": ("onnxruntime", "", True),
    "counted": ("onnxruntime", "instance_group [ { count: 2 } ]", True),
    "auto": ("onnxruntime", "instance_group [ { kind: KIND_AUTO } ]", True),
    "cpu": ("onnxruntime", "instance_group [ { kind: KIND_CPU } ]", False),
    "code": ("python", "", True),
    "code_cpu": ("python", "instance_group [ { kind: KIND_CPU } ]", False),
    "unconfigured": ("onnxruntime", None, True),
}
"""Model → its backend, a part of config.pbtxt (None without that file), and whether a GPU would be used for it."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("placement")
    for name, (backend, config, _) in MODELS.items():
        (root / name / "1").mkdir(parents=True)
        if backend == "python":
            (root / name / "1" / "model.py").write_text(PYTHON)
        else:
            (root / name / "1" / "model.onnx").write_bytes(ONNX)
        if config is not None:
            (root / name / "config.pbtxt").write_text(f'backend: "{backend}" max_batch_size: 4 {TENSORS}{config}')
    for folder in (root.parent, root):
        folder.chmod(0o755)
    return root


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    with serving(root) as running:
        yield running


@pytest.mark.parametrize("name", MODELS)
def test_triton_tells_that_it_runs_a_model_on_the_cpu(server: Server, name: str) -> None:
    """It replaces KIND_AUTO, so its answer is the same for KIND_CPU. Only config.pbtxt tells them apart."""

    async def ask() -> bool:
        client = fetch.HttpClient()
        return await runs_on_cpu(client, server.http, name)

    assert asyncio.run(ask())


def test_triton_tells_its_version(server: Server) -> None:
    async def ask() -> str:
        return await server_version(fetch.HttpClient(), server.http)

    said = docker("run", "--rm", "--entrypoint=printenv", SERVER_IMAGE, "TRITON_SERVER_VERSION")
    assert asyncio.run(ask()) == said


def test_the_check_knows_which_of_them_would_use_a_gpu(root: Path) -> None:
    repository, findings = load(root)
    lines = report(repository, findings, Expected(gpus=1)).models
    assert {line.name: line.gpu for line in lines} == {name: gpu for name, (_, _, gpu) in sorted(MODELS.items())}
