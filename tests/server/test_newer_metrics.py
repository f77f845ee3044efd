"""What newer servers measure: the load time of each model, and a histogram of the time to the first response."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc

from model_images.support import SERVER_IMAGE, Server, docker, need_server_image, series, serving
from triton_operator.probe import fetch
from triton_operator.probe.load_times import has_load_times, load_times

pytestmark = pytest.mark.server

LOAD_SECONDS = 2.0
FAST, SLOW = 3, 2
"""Requests that take a few milliseconds, and 150."""
ALL = FAST + SLOW
MODEL = """
import time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        time.sleep(%s)

    def execute(self, requests):
        milliseconds = pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()
        time.sleep(float(milliseconds[0]) / 1000)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", milliseconds)])]
"""
TENSORS = """
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
BUCKETS = """
model_metrics { metric_control [ {
  metric_identifier { family: "nv_inference_first_response_histogram_ms" }
  histogram_options { buckets: [ 100, 140, 400 ] } } ] }
"""
ENSEMBLE = """
ensemble_scheduling { step [ { model_name: "slow" model_version: -1
  input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } ] }
"""


@pytest.fixture(scope="module")
def version() -> str:
    """The version of the server."""
    need_server_image()
    return docker("run", "--rm", "--entrypoint=printenv", SERVER_IMAGE, "TRITON_SERVER_VERSION")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, version: str) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("newer")
    for name in ("slow", "quick", "all"):
        (root / name / "1").mkdir(parents=True)
        config = f'platform: "ensemble" {ENSEMBLE}' if name == "all" else 'backend: "python"'
        if name == "quick" and has_load_times(version):  # the field is as old
            config += BUCKETS
        (root / name / "config.pbtxt").write_text(config + TENSORS)
        if name != "all":
            (root / name / "1" / "model.py").write_text(MODEL % (LOAD_SECONDS if name == "slow" else 0))
    for folder in (root.parent, root):
        folder.chmod(0o755)
    with serving(root, options=["--metrics-config=histogram_latencies=true"]) as running:
        yield running


def test_the_load_time_is_that_of_each_model(server: Server, version: str) -> None:
    times = asyncio.run(load_times(fetch.HttpClient(), server.metrics))
    if not has_load_times(version):
        assert times == {}
        return
    assert set(times) == {("slow", "1"), ("quick", "1"), ("all", "1")}
    assert LOAD_SECONDS <= times["slow", "1"] < LOAD_SECONDS + 5
    assert times["all", "1"] < LOAD_SECONDS, "an ensemble's own load, without its steps"


@pytest.mark.parametrize(
    ("model", "bounds"),
    [("all", {"100": FAST, "500": ALL, "2000": ALL, "5000": ALL}), ("quick", {"100": FAST, "140": FAST, "400": ALL})],
)
def test_the_histogram_counts_requests_by_their_time(
    server: Server, version: str, model: str, bounds: dict[str, int]
) -> None:
    """Those of all models from 26.01 on. The configuration of a model may name the bounds."""
    client = tritonclient.grpc.InferenceServerClient(server.grpc)
    for milliseconds in (1,) * FAST + (150,) * SLOW:
        tensor = tritonclient.grpc.InferInput("IN", [1], "INT32")
        tensor.set_data_from_numpy(np.array([milliseconds], np.int32))
        client.infer(model, [tensor])
    buckets = series(server, f'nv_inference_first_response_histogram_ms_bucket{{model="{model}"')
    counts = {key.partition('le="')[2].partition('"')[0]: count for key, count in buckets.items()}
    measured = tuple(map(int, version.split(".")[:2])) >= (2, 65)
    assert counts == ({**bounds, "+Inf": ALL} if measured else {})
