"""`kubectl triton validate` with Docker: checks images, and adds the errors of tritonserver."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from corpus.faults import FAULTS
from corpus.good import BY_NAME
from kubectl_triton.main import main
from kubectl_triton.validate import in_docker
from model_images.support import SERVER_IMAGE, need_server_image

pytestmark = pytest.mark.server
CACHE = "--server-arg=--cache-config=local,size=1048576"
FAULTY = {fault.name: fault for fault in FAULTS}


@pytest.fixture(scope="module", autouse=True)
def server_image() -> None:
    need_server_image()


@pytest.fixture(autouse=True)
def readable(tmp_path: Path) -> None:
    """The server's user may be another one than that of the tests."""
    tmp_path.chmod(0o755)


def run(*arguments: object) -> Result:
    image = ["--server-image", SERVER_IMAGE] if "--with-server" in arguments else []
    return CliRunner().invoke(main, ["validate", *map(str, arguments), *image])


@pytest.fixture
def image(tmp_path: Path) -> Iterator[str]:
    """An image that contains only a good repository, at /srv/models."""
    BY_NAME["cache"].write(tmp_path / "srv/models")
    archive = tmp_path / "files.tar"
    subprocess.run(["tar", "-C", tmp_path, "-cf", archive, "srv"], check=True)
    name = f"validate-test:{uuid.uuid4().hex[:12]}"
    subprocess.run(["docker", "import", archive, name], check=True, capture_output=True)
    yield name
    subprocess.run(["docker", "rmi", "--force", name], check=False, capture_output=True)


def test_checks_images_in_docker_and_in_files(image, tmp_path):
    result = run(image, "--path", "/srv/models")
    assert (result.exit_code, result.stdout) == (0, f"{image}: 1 model, 0 errors, 0 warnings, 0 notes\n")
    wrong = run(image)
    assert wrong.exit_code == 2
    assert "no models at /models" in wrong.output
    # Docker writes one of two formats to the file, depending on its version.
    saved = tmp_path / "image.tar"
    subprocess.run(["docker", "save", "--output", saved, image], check=True)
    assert run(saved, "--path", "/srv/models").exit_code == 0
    # The server gets a directory with the image's files.
    result = run(saved, "--path", "/srv/models", "--with-server", CACHE)
    assert result.exit_code == 0, result.output


def test_reports_a_missing_image():
    result = run("validate-test:never-made")
    assert result.exit_code == 2
    assert "neither a directory, nor a file, nor an image" in result.output


RAISES = """
import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        if "raise" in json.loads(args["model_config"])["parameters"]:
            raise ValueError("the parameter of the spec is here")

    def execute(self, requests):
        values = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]) for value in values]
"""


@pytest.mark.parametrize("parameter", ["raise", "other"])
def test_server_gets_the_settings_of_the_spec(tmp_path, parameter):
    root = BY_NAME["cache"].write(tmp_path / "models")
    (root / "slow/1/model.py").write_text(RAISES)
    spec = tmp_path / "model.yaml"
    spec.write_text(
        "{kind: TritonModel, metadata: {name: x}, spec: {modelImage: {reference: r}, models: [{name: slow, "
        f"config: {{parameters: {{{parameter}: {{string_value: a}}}}}}}}]}}}}"
    )
    result = run(root, "--spec", spec, "--with-server", CACHE)
    assert ("the parameter of the spec is here" in result.stdout) is (parameter == "raise"), result.output
    assert result.exit_code == (1 if parameter == "raise" else 0)


def test_server_accepts_a_good_repository(tmp_path):
    root = BY_NAME["cache"].write(tmp_path)
    # A machine without GPUs runs it on the CPU.
    assert run(root, "--with-server", CACHE, "--shm-size", "64Mi", "--gpus", "1").exit_code == 0


def test_adds_the_errors_of_the_server(tmp_path):
    root = FAULTY["response cache disabled in the server"].write(tmp_path)
    (root / "slow/1/model.py").write_text(
        "import a_package_that_is_in_no_image\n" + (root / "slow/1/model.py").read_text()
    )
    assert run(root).exit_code == 0
    result = run(root, "--with-server")
    assert result.exit_code == 1
    assert "slow/1/model.py:1: error TR901: tritonserver rejects 'slow'" in result.stdout
    assert "No module named 'a_package_that_is_in_no_image'" in result.stdout


def test_reports_a_server_that_exits_during_the_wait(tmp_path, monkeypatch):
    def looked(*arguments: str) -> str:
        output = docker(*arguments)
        if arguments[0] == "inspect":  # like on a busy machine, the server exits before the next command runs
            docker("wait", arguments[-1])
        return output

    docker = in_docker.docker
    monkeypatch.setattr(in_docker, "docker", looked)
    result = run(FAULTY["directory for a label file"].write(tmp_path), "--with-server")
    assert result.exit_code == 1
    assert ".: error TR902: tritonserver exited; last line of its log: " in result.stdout


def test_a_model_that_does_not_load_hides_no_other(tmp_path):
    root = FAULTY["missing dims"].write(tmp_path)
    text = (root / "pre/1/model.py").read_text()
    (root / "pre/1/model.py").write_text(text.replace("for request in requests", "for request in request"))
    result = run(root, "--with-server", "--each-step")
    assert "TR901: tritonserver rejects 'post': Invalid argument: model input 'BOXES' must" in result.stdout
    assert "error TR904: each request" in result.stdout
    assert "UnboundLocalError" in result.stdout or "NameError" in result.stdout


def test_reports_a_server_that_hangs(tmp_path):
    root = FAULTY["model.py under another file name"].write(tmp_path)
    result = run(root, "--with-server", "--seconds", "8")
    assert "TR204" in result.stdout
    assert ".: error TR902: tritonserver isn't ready after 8 s" in result.stdout


FORGETS = """
import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    broken = False

    def execute(self, requests):
        if self.broken:
            raise ValueError("a cancelled request left its mark")
        for _ in range(4):
            time.sleep(0.1)
            self.broken = self.broken or any(request.is_cancelled() for request in requests)
        values = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]) for value in values]
"""
CONFIG = """\
backend: "python"
input [{ name: "IN" data_type: TYPE_FP32 dims: [4] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [4] }]
instance_group [{ kind: KIND_CPU }]
"""
WARMUP = """\
model_warmup [{
  name: "zeros"
  batch_size: 1
  inputs { key: "IN" value: { data_type: TYPE_FP32 dims: [4] zero_data: true } }
}]
"""


def only_model(root: Path, program: str, more: str = "") -> Path:
    (root / "models/net/1").mkdir(parents=True)
    root.chmod(0o755)
    (root / "models/net/config.pbtxt").write_text(CONFIG + more)
    (root / "models/net/1/model.py").write_text(program)
    return root / "models"


def test_a_request_after_a_cancelled_one_shows_what_that_left(tmp_path):
    result = run(only_model(tmp_path, FORGETS), "--with-server")
    assert result.exit_code == 1
    assert "error TR904: each request (zeros, after a cancelled one): fails: ValueError: a cancelled" in result.stdout


def test_the_server_sends_the_samples_of_a_warm_up_when_it_loads_a_model(tmp_path):
    """A server of 2024 may also end (TR902) by a sample that fails."""
    program = FORGETS.replace("broken = False", "broken = True")
    result = run(only_model(tmp_path, program, WARMUP), "--with-server")
    assert result.exit_code == 1
    assert "error TR901: tritonserver rejects 'net'" in result.stdout or "error TR902: " in result.stdout
    assert "TR904" not in result.stdout, "no request of ours was the first"
