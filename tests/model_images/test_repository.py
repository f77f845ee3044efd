"""The repository's files agree with each other, with Triton's schema, and with the model image."""

import ast
import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from model_images.support import DETECTION, docker

REPOSITORY = DETECTION / "repository"
MODELS = ("detection", "postprocess", "preprocess", "yolov5s")


def config(model: str) -> model_config_pb2.ModelConfig:
    """Parses a model's config.pbtxt. Raises for an unknown field."""
    text = (REPOSITORY / model / "config.pbtxt").read_text(encoding="utf-8")
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def test_every_folder_is_a_model_with_batches() -> None:
    assert tuple(sorted(p.name for p in REPOSITORY.iterdir())) == MODELS
    for model in MODELS:
        assert config(model).name == model
        assert config(model).max_batch_size > 1
        assert any((REPOSITORY / model / "1").iterdir()), "git drops an empty version directory"


def test_the_ensemble_connects_tensors_of_the_same_type_and_shape() -> None:
    ensemble = config("detection")
    tensors = {t.name: (t.data_type, list(t.dims)) for t in ensemble.input}
    for step in ensemble.ensemble_scheduling.step:
        part = config(step.model_name)
        assert part.max_batch_size >= ensemble.max_batch_size
        assert set(step.input_map) == {t.name for t in part.input}
        for tensor in part.input:
            assert tensors[step.input_map[tensor.name]] == (tensor.data_type, list(tensor.dims))
        for tensor in part.output:
            tensors[step.output_map[tensor.name]] = (tensor.data_type, list(tensor.dims))
    assert tensors["DETECTIONS"] == (model_config_pb2.TYPE_STRING, [1])


@pytest.mark.parametrize("path", sorted(REPOSITORY.rglob("*.py")), ids=lambda p: p.parent.parent.name + "/" + p.name)
def test_the_servers_python_can_parse_the_code(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))


@pytest.mark.server
def test_the_model_image_contains_only_the_repository() -> None:
    image = docker("build", "--quiet", str(DETECTION)).splitlines()[-1]
    # `docker create` needs a command, but the image has none. The container never runs.
    container = docker("create", image, "none")
    try:
        archive = subprocess.run(["docker", "cp", f"{container}:/models", "-"], capture_output=True, check=True).stdout
    finally:
        docker("rm", container)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        held = {m.name: files.extractfile(m).read() for m in files.getmembers() if m.isfile()}  # type: ignore[union-attr]
        modes = {m.name: m.mode for m in files.getmembers()}
    expected = {
        f"models/{p.relative_to(REPOSITORY)}": p.read_bytes()
        for p in REPOSITORY.rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert held.keys() == expected.keys()
    assert held == expected
    assert all(mode & 0o004 for mode in modes.values()), "the server's user must be able to read it"
