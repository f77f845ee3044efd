"""The models passthrough, custom_metrics and template in one server, with their clients."""

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import yaml
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import InferenceServerException

from model_images.support import MODEL_IMAGES, Server, docker, series, serving
from triton_operator.api.types import TritonModel

FOLDERS = {"passthrough": "passthrough", "custom_metrics": "custom_metrics", "template": "my_model"}
SAMPLES = MODEL_IMAGES.parent / "manifests" / "samples"
server_test = pytest.mark.server


def module(path: str) -> ModuleType:
    """Imports a file of model_images by its path."""
    spec = importlib.util.spec_from_file_location(path.replace("/", "_"), MODEL_IMAGES / f"{path}.py")
    assert spec
    assert spec.loader
    python_module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(python_module)
    return python_module


passthrough = module("passthrough/client/passthrough")
custom_metrics = module("custom_metrics/client/custom_metrics")
template = module("template/client/ask")


@pytest.fixture(scope="module")
def small() -> Iterator[Server]:
    with serving(*(MODEL_IMAGES / folder / "repository" for folder in FOLDERS)) as running:
        yield running


@pytest.mark.parametrize(("folder", "model"), FOLDERS.items())
def test_the_repository_and_the_tritonmodel_have_the_same_model_name(folder: str, model: str) -> None:
    text = (MODEL_IMAGES / folder / "repository" / model / "config.pbtxt").read_text()
    assert text_format.Parse(text, model_config_pb2.ModelConfig()).name == model
    sample = MODEL_IMAGES / folder / "tritonmodel.yaml"
    if folder != "template":
        sample = SAMPLES / f"{folder.replace('_', '-')}.yaml"
    applied = yaml.safe_load(sample.read_text())
    applied["metadata"] |= {"namespace": "default", "uid": ""}
    assert TritonModel.model_validate(applied).spec.entrypoint == model


@server_test
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_image_contains_only_the_repository(folder: str) -> None:
    image = docker("build", "--quiet", str(MODEL_IMAGES / folder)).splitlines()[-1]
    (layer,) = json.loads(docker("inspect", image))[0]["RootFS"]["Layers"]
    assert layer
    assert int(docker("inspect", "--format={{.Size}}", image)) < 20_000


@server_test
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_returns_the_parameters_unchanged(small: Server, protocol: str) -> None:
    url = small.grpc if protocol == "grpc" else small.http
    sent = {"user": 7, "note": "sedm čárek: \"'{}", "flag": True, "negative": -(2**40)}
    if protocol == "http":  # only HTTP has fractions; gRPC clients convert them to strings or fail
        sent["part"] = 0.25
    answer = passthrough.send([[1, 2, 3], [4, 5, 6]], sent, url, protocol)
    assert answer["parameters"] == sent
    assert answer["output"] == [[1, 2, 3], [4, 5, 6]]


@server_test
def test_three_instances_take_turns(small: Server) -> None:
    seen = {passthrough.send([[1]], {}, small.http)["instance"] for _ in range(12)}
    assert seen == {f"passthrough_0_{k}" for k in range(3)}
    with tritonclient.http.InferenceServerClient(small.http) as client:
        (group,) = client.get_model_config("passthrough")["instance_group"]
    assert (group["count"], group["kind"]) == (3, "KIND_CPU")


@server_test
def test_accepts_up_to_32_rows(small: Server) -> None:
    rows = np.random.default_rng(0).normal(size=(33, 5)).astype(np.float32)
    assert passthrough.send(rows[:32].tolist(), {}, small.http)["output"] == rows[:32].tolist()
    with pytest.raises(InferenceServerException, match="batch-size must be <= 32"):
        passthrough.send(rows.tolist(), {}, small.http)


@server_test
def test_requests_with_different_widths_get_their_own_rows_and_parameters(small: Server) -> None:
    widths = list(range(1, 41))
    with ThreadPoolExecutor(16) as threads:
        sent = [threads.submit(passthrough.send, [[w] * w], {"w": w}, small.grpc, "grpc") for w in widths]
        answers = [future.result(timeout=60) for future in sent]
    assert [a["output"] for a in answers] == [[[w] * w] for w in widths]
    assert [a["parameters"] for a in answers] == [{"w": w} for w in widths]


@server_test
def test_returns_only_the_requested_outputs(small: Server) -> None:
    tensor = tritonclient.http.InferInput("INPUT", [1, 2], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 2), np.float32))
    with tritonclient.http.InferenceServerClient(small.http) as client:
        answer = client.infer("passthrough", [tensor], outputs=[tritonclient.http.InferRequestedOutput("INSTANCE")])
    assert [o["name"] for o in answer.get_response()["outputs"]] == ["INSTANCE"]


@server_test
def test_the_instances_share_the_models_metrics(small: Server) -> None:
    before = custom_metrics.scrape(small.metrics)
    assert set(before) >= {f"custom_metrics_{x}" for x in ("values_total", "last_batch_rows", "seconds_count")}
    rounds = 10  # both instances take part
    began = time.monotonic()
    assert [custom_metrics.add([1, 2, k], small.http) for k in range(rounds)] == [3 + k for k in range(rounds)]
    took, after = time.monotonic() - began, custom_metrics.scrape(small.metrics)
    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert grown["custom_metrics_values_total"] == 3 * rounds
    assert after["custom_metrics_last_batch_rows"] == 1
    assert grown["custom_metrics_seconds_count"] == rounds
    assert grown['custom_metrics_seconds_bucket{le="+Inf"}'] == rounds
    assert 0 < grown["custom_metrics_seconds_sum"] < took
    counts = [v for name, v in grown.items() if "_bucket" in name]
    assert counts == sorted(counts)


@server_test
def test_the_models_metrics_have_the_labels_of_tritons_metrics(small: Server) -> None:
    custom_metrics.add([1], small.http)
    assert 'custom_metrics_values_total{model="custom_metrics",version="1"}' in series(small, "custom_metrics_values")


@server_test
def test_the_template_answers_good_and_refuses_bad_requests(small: Server) -> None:
    assert template.ask([[1, 2, 3, 4], [8, 0, 0, 0]], small.http) == [3.25, 8]
    with pytest.raises(InferenceServerException, match="the features must be finite numbers") as caught:
        template.ask([[1, 2, 3, float("nan")]], small.http)
    assert caught.value.status() == "400"
    with pytest.raises(InferenceServerException, match=r"unexpected shape .* \[-1,4\]"):
        template.ask([[1, 2, 3]], small.http)


@server_test
def test_a_bad_request_in_a_batch_of_the_template_fails_alone(small: Server) -> None:
    rows = [[float(k), 0, 0, 0] if k % 4 else [float("inf")] * 4 for k in range(64)]
    with ThreadPoolExecutor(16) as threads:
        sent = [threads.submit(template.ask, [row], small.http) for row in rows]
    for k, future in enumerate(sent):
        if k % 4:
            assert future.result() == [k]
        else:
            assert "finite" in str(future.exception())


@server_test
@pytest.mark.parametrize(
    ("command", "output"),
    [
        (["passthrough/client/passthrough.py", "--parameter", "a=1", "2", "3"], '"output": [[2.0, 3.0]]'),
        (["custom_metrics/client/custom_metrics.py", "--metrics", "{metrics}", "2", "3"], '"sum": 5.0'),
        (["template/client/ask.py", "1,2,3,4"], "3.25"),
    ],
)
def test_the_command_line_clients_print_the_result(small: Server, command: list[str], output: str) -> None:
    program, *rest = (part.format(metrics=small.metrics) for part in command)
    result = subprocess.run(
        [sys.executable, MODEL_IMAGES / program, "--url", small.http, *rest],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert output in result.stdout
