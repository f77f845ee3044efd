"""/dev/shm of a server: a volume of the pod, which outlives a server that is killed."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from model_images.support import SERVER_IMAGE, Server, addresses, docker, need_server_image, serving
from support import gen
from support.api import eventually
from triton_operator.api.servers import IndexEntry
from triton_operator.pods.served import Expected
from triton_operator.render import start
from triton_operator.render.delivery import BUSYBOX
from triton_operator.status.models import model_states

pytestmark = pytest.mark.server

MIB = 1 << 20
CONFIG = """
backend: "python"
max_batch_size: 8
input [ {{ name: "IN" data_type: TYPE_UINT8 dims: [ 1048576 ] }} ]
output [ {{ name: "OUT" data_type: TYPE_UINT8 dims: [ 1048576 ] }} ]
instance_group [ {{ kind: KIND_CPU count: {count} }} ]
"""
MODEL = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", tensor)]) for tensor in tensors]
"""


def repository(root: Path, **counts: int) -> Path:
    root.mkdir(exist_ok=True)
    root.chmod(0o755)  # the server has another user
    for name, count in counts.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(CONFIG.format(count=count))
        (root / name / "1" / "model.py").write_text(MODEL)
    return root


def infer(server: Server, batch: int) -> tuple[int, bytes]:
    header = {
        "inputs": [{
            "name": "IN", "datatype": "UINT8", "shape": [batch, MIB], "parameters": {"binary_data_size": batch * MIB},
        }],
        "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}],
    }  # fmt: skip
    text = json.dumps(header).encode()
    request = urllib.request.Request(
        f"http://{server.http}/v2/models/frames/infer",
        text + bytes(batch * MIB),
        {"Inference-Header-Content-Length": str(len(text)), "Content-Type": "application/octet-stream"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, b""
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.fixture
def shared_memory() -> Iterator[tuple[str, Callable[[str], str]]]:
    """A volume of 48 MiB for /dev/shm, like that of a pod. Gives its name, and a function that runs a script there."""
    need_server_image()
    name = f"shm-{uuid.uuid4().hex[:12]}"
    docker("volume", "create", "--driver=local", "--opt=type=tmpfs", "--opt=device=tmpfs", "--opt=o=size=48m,mode=1777",
           name)  # fmt: skip
    try:
        # Docker unmounts the volume when no container uses it.
        docker("run", "--detach", f"--name={name}", f"--volume={name}:/dev/shm:nocopy", "--user=1000:1000",
               "--entrypoint=sleep", SERVER_IMAGE, "infinity")  # fmt: skip
        yield name, lambda script: docker("exec", name, "sh", "-c", script)
    finally:
        subprocess.run(["docker", "rm", "--force", name], capture_output=True, check=False)
        subprocess.run(["docker", "volume", "rm", "--force", name], capture_output=True, check=False)


PREFIX = "--backend-config=python,shm-region-prefix-name=mine"


@pytest.mark.parametrize(("kills", "options"), [(10, []), (2, [PREFIX])], ids=["", "prefix"])
def test_a_killed_server_leaves_no_shared_memory_to_the_next(
    tmp_path: Path, busybox: Path, shared_memory: tuple[str, Callable[[str], str]], kills: int, options: list[str]
) -> None:
    """Without tritonserver and the processes of its models, nobody else removes the regions."""
    volume, inside = shared_memory
    limits = (f"--volume={busybox}:{BUSYBOX}:ro", f"--volume={volume}:/dev/shm:nocopy")
    models = repository(tmp_path / "models", frames=2)
    sizes = []
    with serving(models, limits=limits, options=options, command=start.command()) as server:
        for _ in range(kills):
            # A batch for each of both instances.
            assert [infer(server, 4) for _ in range(2)] == [(200, b"")] * 2
            sizes.append(int(inside("du -sk /dev/shm | cut -f1")))
            docker("kill", "--signal=KILL", server.container)
            docker("start", server.container)
            server = Server(*addresses(server.container), server.container)
        assert infer(server, 4) == (200, b"")
    assert max(sizes) < 2 * min(sizes), sizes


def test_a_start_removes_nothing_of_others(tmp_path: Path, busybox: Path) -> None:
    need_server_image()
    region = uuid.UUID(int=1)
    former = ["dev/shm/triton_vllm_backend_shm_region_x", f"dev/shm/mine{region}", "tmp/python_env_a1B2c3/bin/python"]
    others = ["dev/shm/triton_python_backend", f"dev/shm/mine{region}x", "dev/shm/mine", "tmp/python_env_notes"]
    for name in (*former, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for path in tmp_path.rglob("*"):
        path.chmod(0o777)
    volumes = (f"--volume={busybox}:{BUSYBOX}:ro", *(f"--volume={tmp_path / p}:/{p}" for p in ("dev/shm", "tmp")))
    # A shell takes the place of tritonserver.
    *script, _ = start.command()
    docker(
        "run", "--rm", "--user=1000:1000", "--read-only", *volumes, SERVER_IMAGE, *script, "sh", "-c", "true", PREFIX
    )
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {*others}


def test_says_that_shared_memory_is_full(tmp_path: Path, busybox: Path) -> None:
    """In the status for a model that doesn't load, and in the server's log."""
    models = repository(tmp_path, frames=1, many=9)
    limits = (f"--volume={busybox}:{BUSYBOX}:ro", "--shm-size=8m")
    options = ("--model-control-mode=explicit", "--load-model=frames")
    with serving(models, limits=limits, options=options, command=start.command()) as server:
        code, words = infer(server, 8)
        assert code == 500
        assert b"No space left on device" in words
        request = urllib.request.Request(f"http://{server.http}/v2/repository/models/many/load", b"{}", method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        assert refused.value.code == 400
        index = urllib.request.Request(f"http://{server.http}/v2/repository/index", b"{}", method="POST")
        with urllib.request.urlopen(index, timeout=10) as response:
            (row,) = (row for row in json.load(response) if row["name"] == "many")
    entry = IndexEntry(row["name"], row["version"], row["state"], row["reason"])
    (state,) = model_states(gen.NAME, {"pod": (entry,)}, Expected(["many"]), shared_memory="8Mi")
    assert state.reason.startswith("/dev/shm (8Mi) is full: less than 1Mi is free. Raise spec.server.sharedMemory")


def test_the_log_says_that_shared_memory_is_nearly_full(tmp_path: Path, busybox: Path) -> None:
    models = repository(tmp_path, frames=1)
    limits = (f"--volume={busybox}:{BUSYBOX}:ro", "--shm-size=64m")
    with serving(models, limits=limits, command=start.command()) as server:
        docker("exec", server.container, BUSYBOX, "dd", "if=/dev/zero", "of=/dev/shm/file", "bs=1M", "count=62")

        def log() -> str:
            result = subprocess.run(["docker", "logs", server.container], capture_output=True, text=True, check=True)
            return result.stdout + result.stderr

        eventually(lambda: "/dev/shm is nearly full (1 of 64 MiB free)" in log(), 60, log)
        assert infer(server, 8)[0] == 500
