"""The program that changes the model repository of a running server, with a real Triton that answers clients."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc

from model_images import support
from model_images.test_load_models import Published
from model_images.test_model_control import ECHO, PIPE, Site, asking
from triton_operator.api.servers import Server
from triton_operator.in_place.__main__ import main
from triton_operator.in_place.change import change
from triton_operator.in_place.compare import NewServersError
from triton_operator.in_place.memory import Memory
from triton_operator.repository.load import load

pytestmark = pytest.mark.server
ENOUGH = Memory(1, 1 << 40)


@dataclass
class Pod:
    """The volume with the repositories of a server, and the server."""

    root: Path
    server: Server

    def write(self, number: str, variant: str, *, fails: bool = False) -> None:
        """Writes a repository whose model `echo` answers with `variant`."""
        (self.root / number).mkdir()
        for name in ("echo", "other"):
            Site(None, self.root / number).write(name, variant if name == "echo" else "v1")  # type: ignore[arg-type]
        if fails:
            Site(None, self.root / number).write("echo", variant, fails=True)  # type: ignore[arg-type]

    def change(self, seconds: float = 60, memory: Memory | None = ENOUGH) -> str:
        """Changes the repository to the directory 1. Returns what the container that copied the files reads."""
        os.mkfifo(self.root / "1.pipe")
        with ThreadPoolExecutor() as pool:
            read = pool.submit((self.root / "1.pipe").read_text)
            try:
                change(self.root, "1", self.server, seconds, memory, load(self.root / "1")[0])
            finally:
                if not read.done():
                    with contextlib.suppress(OSError):
                        os.close(os.open(self.root / "1.pipe", os.O_WRONLY | os.O_NONBLOCK))
        return read.result()

    @property
    def current(self) -> str:
        return str((self.root / "current").readlink())


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    tmp_path.parent.chmod(0o755)
    tmp_path.chmod(0o755)
    pod = Pod(tmp_path, Server("", "", "", (0, True)))
    pod.write("0", "v1")
    (tmp_path / "current").symlink_to("0")
    options = ["--model-control-mode=explicit", "--load-model=echo", "--exit-on-error=false"]
    with support.serving(tmp_path, options=options, within="current") as running:
        pod.server = Published("uid", "pod", "", (0, True), running)
        yield pod


def test_changes_the_repository_without_a_failed_request(pod: Pod) -> None:
    pod.write("1", "v2")
    with asking(pod.server.grpc, tritonclient.grpc) as answers:
        assert pod.change() == "0", "to move the link back if the server ends"
    assert not answers.errors
    assert {variant.split()[0] for variant in answers.variants} == {"v1", "v2"}
    assert pod.current == "1"
    assert not (pod.root / "0").exists(), "two versions would fill the node's disk"


@pytest.mark.parametrize(("fails", "memory", "words"), [
    (True, ENOUGH, "the weights are from Tuesday"),
    (False, Memory(2 << 30, 3 << 30), "may need 2048 MiB"),
    (False, None, "can't be read"),
])  # fmt: skip
def test_a_change_that_fails_leaves_the_old_model(pod: Pod, fails: bool, memory: Memory | None, words: str) -> None:
    pod.write("1", "v2", fails=fails)
    with asking(pod.server.grpc, tritonclient.grpc) as answers, pytest.raises(NewServersError) as caught:
        pod.change(memory=memory)
    assert words in str(caught.value)
    assert not answers.errors
    assert {variant.split()[0] for variant in answers.variants} == {"v1"}
    assert pod.current == "0"


def test_without_a_reader_of_the_pipe_nothing_is_changed(pod: Pod) -> None:
    pod.write("1", "v2")
    with pytest.raises(NewServersError, match="the container that copied the files has ended"):
        change(pod.root, "1", pod.server, 60, ENOUGH, load(pod.root / "1")[0])
    assert pod.current == "0"


def test_a_load_that_does_not_end_leaves_the_old_model(pod: Pod) -> None:
    pod.write("1", "v2")
    with pytest.raises(NewServersError, match=r"no answer to the load of echo within 0\.2 s"):
        pod.change(0.2)
    assert pod.current == "0"


STEP = """backend: "python"
input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
COMPLETES = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        for name in NAMES:
            config.add_input({"name": name, "data_type": "TYPE_INT32", "dims": [1]})
        return config

    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", one)]) for one in given]
"""


def test_a_step_that_no_longer_fits_its_ensemble_is_undone(pod: Pod) -> None:
    pod.write("1", "v1")
    for number, inputs in (("0", "['INPUT']"), ("1", "['INPUT', 'MORE']")):
        for name in ("step", "pipe"):
            (pod.root / number / name / "1").mkdir(parents=True)
        (pod.root / number / "pipe" / "config.pbtxt").write_text(PIPE)
        # The model has one more input than config.pbtxt says, which the check can't know.
        (pod.root / number / "step" / "config.pbtxt").write_text(STEP)
        (pod.root / number / "step" / "1" / "model.py").write_text(COMPLETES.replace("NAMES", inputs))
    with tritonclient.grpc.InferenceServerClient(pod.server.grpc) as client:
        client.load_model("pipe")
        with pytest.raises(NewServersError, match=r"the new step doesn't fit the ensembles with it: pipe$"):
            pod.change()
        given = tritonclient.grpc.InferInput("INPUT", [1], "INT32")
        given.set_data_from_numpy(np.array([7], np.int32))
        assert client.infer("pipe", [given]).as_numpy("OUTPUT") == [7]
    assert pod.current == "0"


def test_a_program_that_runs_again_leaves_the_files_of_the_server(tmp_path: Path) -> None:
    shutil.copytree(ECHO / "repository", tmp_path / "1")
    (tmp_path / "current").symlink_to("1")
    options = [
        f"--repositories={tmp_path}", "--number=1", "--end=0", "--load-seconds=9",
        f"--termination-log={tmp_path / 'log'}",
    ]  # fmt: skip
    assert main(options) == 1
    assert (tmp_path / "1" / "echo" / "config.pbtxt").exists()
    (tmp_path / "1.done").touch()
    assert main(options) == 0
    assert (tmp_path / "1" / "echo" / "config.pbtxt").exists()


def test_ends_at_once_if_the_files_cannot_be_copied(tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to("0")
    (tmp_path / "1.failed").touch()
    log = tmp_path / "log"
    options = [f"--repositories={tmp_path}", "--number=1", f"--end={time.time() + 20:.0f}", "--load-seconds=1"]
    assert main([*options, f"--termination-log={log}"]) == 1
    assert log.read_text() == "the new files could not be copied"


def test_reports_why_it_changed_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "current").symlink_to("0")
    shutil.copytree(ECHO / "repository", tmp_path / "1")
    (tmp_path / "1" / "echo" / "config.pbtxt").write_text('name: "echo"\ninput [ {\n')
    (tmp_path / "1.complete").touch()
    options = [
        f"--repositories={tmp_path}", "--number=1", "--end=0", "--load-seconds=9", "--entrypoint=echo",
        f"--termination-log={tmp_path / 'log'}",
    ]  # fmt: skip
    assert main(options) == 1
    assert "echo/config.pbtxt:" in (tmp_path / "log").read_text()
    assert (tmp_path / "log").read_text() in capsys.readouterr().err
    assert not (tmp_path / "1").exists()
    assert main(options) == 1
    assert (tmp_path / "log").read_text() == "the new files did not arrive in time"
