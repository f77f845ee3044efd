"""What the container that shows processes says of a real Triton, from the looks of the start script."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from model_images.support import Server, docker, serving
from process_exporter.__main__ import Exporter
from process_exporter.models import loaded
from process_exporter.series import CPU, LABELS, MEMORY, MEMORY_LIMIT, MEMORY_USED, STARTED, THREADS, WORKS
from process_exporter.server_memory import Models
from server.python_models import CONFIG, write_repository
from support.api import eventually
from triton_operator.render import processes, start
from triton_operator.render.delivery import BUSYBOX

pytestmark = pytest.mark.server

FOLDER = processes.EXPORTER.folder
MIB = 1 << 20
# A negative value starts a process that takes CPU and ends, a positive one takes so many MiB.
BUSY = """
import json
import subprocess
import time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.kept = []
        parameters = json.loads(args["model_config"])["parameters"]
        time.sleep(int(parameters["wait"]["string_value"]) if "wait" in parameters else 0)

    def execute(self, requests):
        values = [int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0]) for request in requests]
        for value in values:
            if value < 0:
                subprocess.run(["sh", "-c", f"i=0; while [ $i -lt {-value} ]; do i=$((i+1)); done"], check=True)
            else:
                self.kept.append(b"x" * (value << 20))
        tensor = pb_utils.get_input_tensor_by_name(requests[0], "IN")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", tensor.as_numpy())]) for _ in requests]
"""
# The instances of a model have the names of its groups.
GROUP = CONFIG.replace("kind", 'name: "group.a" kind')


class Of(NamedTuple):
    """The labels of a line of the page."""

    model: str = ""
    version: str = ""
    process: str = ""
    kind: str = ""


ONE, BUSY_0, BUSY_1 = (
    Of(instance.partition("_")[0], "1", instance) for instance in ("one_0_0", "busy_0_0", "busy_0_1")
)
ITSELF, OTHER = Of(process="tritonserver"), Of(process="other")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_repository(tmp_path_factory.mktemp("repository"))
    for name, config in (("busy", CONFIG % 2), ("grouped", GROUP % 1)):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config)
        (folder / name / "1" / "model.py").write_text(BUSY)
    return folder


class Shown:
    """A server as in a pod, which writes a look every second, and the exporter that reads it."""

    def __init__(self, server: Server, look: Path) -> None:
        self.server, self.look = server, look
        self.exporter = Exporter(look, self.models)

    def models(self) -> Models | None:
        return loaded(int(self.server.metrics.rpartition(":")[2]))

    def read(self, metric: str) -> dict[Of, float]:
        """Returns the samples of a metric on the page."""
        samples = (sample for family in self.exporter.collect() for sample in family.samples)
        return {
            Of(*(str(s.labels.get(label, "")) for label in (*LABELS, "kind"))): s.value
            for s in samples
            if s.name == metric
        }

    @property
    def cpu(self) -> dict[Of, float]:
        return self.read(f"{CPU}_total")

    def step(self) -> None:
        """Reads a look that was begun after now."""
        for _ in range(2):
            before = self.look.stat().st_ino
            eventually(lambda before=before: self.look.stat().st_ino != before, 60, "a newer look", every=0.1)
        self.exporter.step()
        assert self.read(WORKS) == {Of(): 1}

    def infer(self, model: str, value: int) -> None:
        tensor = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [value]}
        self.post(f"/v2/models/{model}/infer", {"inputs": [tensor]})

    def post(self, path: str, body: object) -> None:
        request = urllib.request.Request(f"http://{self.server.http}{path}", json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert answer.status == 200


@contextmanager
def shown(repository: Path, busybox: Path, folder: Path, *models: str) -> Iterator[Shown]:
    """`folder`: for the looks."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    command = start.command(processes=True)
    assert "sleep 15" in command[3]
    command[3] = command[3].replace("sleep 15", "sleep 1")
    mounts = ["--memory=2g", f"--volume={busybox}:{BUSYBOX}:ro", f"--volume={folder}:{FOLDER}"]
    flags = ["--model-control-mode=explicit", *(f"--load-model={model}" for model in models)]
    with serving(repository, limits=mounts, options=flags, command=command) as server:
        found = Shown(server, folder / "look")
        eventually(found.look.exists, 60, "a look", every=0.2)
        found.step()
        yield found


def test_each_process_has_its_memory_cpu_and_threads(repository: Path, busybox: Path, tmp_path: Path) -> None:
    with shown(repository, busybox, tmp_path / "looks", "one", "busy", "grouped") as found:
        models = {ONE, BUSY_0, BUSY_1, Of("grouped", "1", "group.a_0")}
        assert found.cpu.keys() == models | {ITSELF, OTHER}
        assert found.read(STARTED).keys() == models | {ITSELF}
        assert all(abs(at - time.time()) < 600 for at in found.read(STARTED).values())
        # one: its process, and the two that model.py has forked; the first of them has ended.
        assert 2 <= found.read(THREADS)[ONE] < found.read(THREADS)[ITSELF]
        cpu, memory = found.cpu, found.read(MEMORY)
        used = found.read(MEMORY_USED)[Of()]
        # What all processes have, but files, and what forked ones share.
        assert 0.7 < used / sum(size for of, size in memory.items() if of.kind != "file") < 1.2

        found.infer("busy", 200)
        found.infer("busy", -1_000_000)
        found.step()
        own = {of: (size - memory[of]) / MIB for of, size in found.read(MEMORY).items() if of.kind == "anonymous"}
        assert 195 < (found.read(MEMORY_USED)[Of()] - used) / MIB < 240
        assert found.read(MEMORY_LIMIT) == {Of(): 2 << 30}
        # Triton may give the two requests to different instances.
        busy = (BUSY_0, BUSY_1)
        assert 195 < sum(own.pop(of._replace(kind="anonymous")) for of in busy) < 230, own
        assert max(own.values()) < 40, own
        spent = {of: seconds - cpu[of] for of, seconds in found.cpu.items()}
        of_busy = sum(spent.pop(of) for of in busy)
        assert of_busy > 10 * max(0.02, spent[ONE]), (of_busy, spent)
        assert of_busy > 2 * spent[ITSELF], (of_busy, spent)


def test_the_memory_is_what_linux_says(repository: Path, busybox: Path, tmp_path: Path) -> None:
    script = (
        "for path in /proc/[0-9]*; do tr '\\0' ' ' <$path/cmdline | grep -q '^[^ ]*stub.* two_0_0' && "
        "cat $path/status; done; true"
    )
    with shown(repository, busybox, tmp_path / "looks", "two") as found:
        lines = docker("exec", found.server.container, "sh", "-c", script).splitlines()
        # Two processes: that of the model, and the one that it has forked.
        truth = {
            kind: sum(int(line.split()[1]) for line in lines if line.startswith(f"Rss{name}:")) / 1024
            for kind, name in (("anonymous", "Anon"), ("file", "File"), ("shared", "Shmem"))
        }
        assert truth["anonymous"] > 5
        sizes = {of.kind: size / MIB for of, size in found.read(MEMORY).items() if of.model == "two"}
        assert sizes == pytest.approx(truth, abs=2)


def test_a_reload_counts_each_process_once(repository: Path, busybox: Path, tmp_path: Path) -> None:
    """The new processes wait in `initialize` beside the old ones, which have used seconds of CPU."""
    with shown(repository, busybox, tmp_path / "looks", "one", "busy") as found:
        for _ in range(6):
            found.infer("busy", -1_000_000)
        found.step()
        spent, started = found.cpu, found.read(STARTED)
        of_busy = spent[BUSY_0] + spent[BUSY_1]
        assert of_busy > 1
        slow = {"parameters": {"config": json.dumps(two_instances(wait=8))}}
        load = threading.Thread(target=found.post, args=("/v2/repository/models/busy/load", slow))
        load.start()
        while load.is_alive():
            found.step()
            now = found.cpu
            assert of_busy <= now[BUSY_0] + now[BUSY_1] < of_busy + 3
            assert all(now[of] >= spent[of] for of in (BUSY_0, BUSY_1, ONE, ITSELF)), (spent, now)
        assert found.read(STARTED)[BUSY_0] > started[BUSY_0]
        assert found.read(STARTED)[ONE] == started[ONE]
        found.post("/v2/repository/models/busy/unload", {})

        def is_gone() -> bool:
            found.step()
            return BUSY_0 not in found.cpu

        eventually(is_gone, 60, lambda: str(found.cpu), every=0.1)
        assert found.cpu.keys() == {ONE, ITSELF, OTHER}
        assert found.cpu[OTHER] < 2


def two_instances(wait: int) -> dict[str, object]:
    """Returns the configuration of `busy`, changed, so that Triton loads it again. `wait`: seconds of `initialize`."""
    tensor = {"data_type": "TYPE_INT32", "dims": [1]}
    return {
        "backend": "python", "input": [{"name": "IN", **tensor}], "output": [{"name": "OUT", **tensor}],
        "instance_group": [{"kind": "KIND_CPU", "count": 2}], "parameters": {"wait": {"string_value": str(wait)}},
    }  # fmt: skip


def test_the_loaded_models_are_those_of_the_metrics(repository: Path, busybox: Path, tmp_path: Path) -> None:
    with shown(repository, busybox, tmp_path / "looks", "one") as found:

        def names() -> list[bytes]:
            models = found.models()
            assert models is not None
            return sorted(models)

        def of(model: str) -> bytes:
            return f'nv_inference_request_success{{model="{model}",version="1"}}'.encode()

        assert names() == [of("one")]
        found.post("/v2/repository/models/busy/load", {})
        assert names() == [of("busy"), of("one")]
        found.infer("busy", 1)
        assert names() == [of("busy"), of("one")]
        found.post("/v2/repository/models/busy/unload", {})
        eventually(lambda: names() == [of("one")], 30, names)


def test_without_the_server_there_is_no_process(repository: Path, busybox: Path, tmp_path: Path) -> None:
    with shown(repository, busybox, tmp_path / "looks", "one") as found:
        assert found.cpu
    found.exporter.step()
    assert found.cpu

    def is_gone() -> bool:
        found.exporter.step()
        return not found.cpu

    eventually(is_gone, 90, lambda: str(found.cpu), every=1)
    assert found.read(WORKS) == {Of(): 0}
