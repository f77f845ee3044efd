"""The sampler beside a real Triton: which requests it measures, over HTTP and gRPC, and what a restart changes."""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils

from latency_sampler import series
from latency_sampler.sampler import Sampler
from latency_sampler.sampling import BATCH
from latency_sampler.versions import may_trace
from model_images.support import SERVER_IMAGE, Server, addresses, docker, need_server_image, serving
from support.api import eventually

pytestmark = pytest.mark.server

FLAGS = ("--trace-config=triton,file=/traces/trace", "--trace-config=triton,log-frequency=1")
SLEEP = 0.15
MODEL = f"""
import time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        time.sleep({SLEEP} if tensors[0][0] else 0)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", tensor)]) for tensor in tensors]
"""
TENSORS = """
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
ENSEMBLE = """
platform: "ensemble"
ensemble_scheduling { step [ { model_name: "step" model_version: -1
  input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } ] }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the server writes traces."""
    path = tmp_path / "traces"
    path.mkdir()
    path.chmod(0o777)
    return path


@pytest.fixture(scope="module", autouse=True)
def can_trace() -> None:
    need_server_image()
    if "--trace-config" not in docker("run", "--rm", SERVER_IMAGE, "sh", "-c", "tritonserver --help 2>&1 || true"):
        pytest.skip("this server was built without traces")


@pytest.fixture
def server(tmp_path: Path, folder: Path) -> Iterator[Server]:
    repository = tmp_path / "models"
    for name, text in (("step", 'backend: "python"\n'), ("whole", ENSEMBLE)):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(text + TENSORS)
    (repository / "step" / "1" / "model.py").write_text(MODEL)
    tmp_path.chmod(0o755)
    with serving(repository, options=FLAGS, limits=[f"--volume={folder}:/traces"]) as running:
        yield running


class Watched:
    """A sampler for which a second passes with each step."""

    def __init__(self, address: str, folder: Path) -> None:
        self._seconds = itertools.count()
        self.sampler = Sampler(f"http://{address}", folder, clock=lambda: next(self._seconds) * 10**9, oldest=(2, 51))

    def look(self) -> None:
        """Lets the sampler look at Triton's setting, and read the files."""
        self.sampler.step()

    def count(self, name: str, model: str) -> float:
        """Returns a value of the page after the files that there are now."""
        self.sampler.step()
        labels = {"model": model, "version": "1"}
        samples = (s for family in self.sampler.histograms.collect() for s in family.samples)
        return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())

    def within(self, name: str, model: str, bound: str) -> float:
        samples = (s for family in self.sampler.histograms.collect() for s in family.samples)
        wanted = {"model": model, "version": "1", "le": bound}
        return sum(s.value for s in samples if s.name == f"{name}_bucket" and s.labels == wanted)


def infer(server: Server, value: int, module: Any = tritonclient.http) -> None:
    address = server.http if module is tritonclient.http else server.grpc
    tensor = module.InferInput("IN", [1], "INT32")
    tensor.set_data_from_numpy(np.array([value], np.int32))
    with module.InferenceServerClient(address) as client:
        client.infer("whole", [tensor])


def setting(address: str) -> Any:
    with urllib.request.urlopen(f"http://{address}/v2/trace/setting", timeout=10) as answer:
        return json.load(answer)


def test_measures_requests_and_steps_over_both_protocols(server: Server, folder: Path) -> None:
    watched = Watched(server.http, folder)
    infer(server, 0)
    watched.look()
    assert setting(server.http)["trace_level"] == ["TIMESTAMPS"]
    for module in (tritonclient.http, tritonclient.grpc):
        for value in (0, 0, 1):
            infer(server, value, module)
    for model in ("whole", "step"):
        # Triton writes a trace after it has answered.
        eventually(
            lambda model=model: watched.count(f"{series.REQUEST}_count", model) == 6, 30, lambda: folder.iterdir()
        )
        assert watched.within(series.REQUEST, model, "0.125") == 4
    # The queue and the execution are those of the step.
    assert watched.count(f"{series.COMPUTE}_count", "step") == 6
    assert watched.within(series.COMPUTE, "step", "0.1") == 4
    assert watched.within(series.QUEUE, "step", "0.1") == 6
    assert watched.count(f"{series.COMPUTE}_count", "whole") == 0
    assert list(folder.iterdir()) == []


def test_a_server_that_tracing_could_end_traces_nothing(server: Server, folder: Path) -> None:
    sampler = Sampler(f"http://{server.http}", folder)
    sampler.step()
    with urllib.request.urlopen(f"http://{server.http}/v2", timeout=10) as answer:
        is_old = not may_trace(json.load(answer)["version"])
    assert setting(server.http)["trace_level"] == ["OFF" if is_old else "TIMESTAMPS"]
    assert sampler.histograms.works is not is_old


def test_a_server_that_restarts_is_measured_again(server: Server, folder: Path) -> None:
    watched = Watched(server.http, folder)
    watched.look()
    docker("restart", "--time=20", server.container)
    again = server._replace(**dict(zip(("http", "grpc", "metrics"), addresses(server.container), strict=True)))
    assert setting(again.http)["trace_level"] == ["OFF"]
    watched = Watched(again.http, folder)  # its port has changed
    watched.look()
    infer(again, 0)
    eventually(lambda: watched.count(f"{series.REQUEST}_count", "whole") == 1, 30, lambda: list(folder.iterdir()))


def test_without_the_sampler_triton_stops_tracing(server: Server, folder: Path) -> None:
    Watched(server.http, folder).look()
    for _ in range(BATCH + 20):
        infer(server, 0)
    eventually(lambda: len(list(folder.iterdir())) == BATCH, 30, lambda: len(list(folder.iterdir())))
    assert setting(server.http)["trace_count"] == "0"
    # What the files of one batch take is far from the size of the folder in a pod.
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2 << 20


def test_refused_requests_are_traced_rarely(server: Server, folder: Path) -> None:
    """Triton loses some memory with each of them."""
    watched = Watched(server.http, folder)
    watched.look()
    with tritonclient.http.InferenceServerClient(server.http) as client:
        tensor = tritonclient.http.InferInput("IN", [2], "INT32")
        tensor.set_data_from_numpy(np.zeros(2, np.int32))
        for _ in range(100):
            for _ in range(5):
                with pytest.raises(tritonclient.utils.InferenceServerException):
                    client.infer("whole", [tensor])
            watched.look()
    assert list(folder.iterdir()) == []
    # Of 500 requests the first 300 are traced, because a request may take a minute.
    assert int(setting(server.http)["trace_rate"]) > 10
