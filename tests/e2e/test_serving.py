"""Serving with every base image and delivery, with real clients."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import yaml

from support.api import condition
from support.cluster import ROOT, Cluster, Namespace

pytestmark = pytest.mark.e2e

DETECTION = ROOT / "model_images" / "detection"
PICTURES = sorted((DETECTION / "samples").glob("*.jpg"))
WAYS = [(base, delivery) for base in ("scratch", "busybox:1.37") for delivery in ("Copy", "ImageVolume")]


@pytest.fixture(scope="module")
def detector(shared_namespace: Namespace) -> Namespace:
    """Applies the sample in manifests/samples, as `make demo` does."""
    overlay = ROOT / "manifests" / "overlays" / "local-sample"
    shared_namespace.kubectl("apply", "-k", str(overlay))
    output = shared_namespace.kubectl(
        "wait", "--for=condition=Ready", "tritonmodel/detector", "--timeout=300s", check=False
    )
    assert "condition met" in output, f"{output}\n{shared_namespace.conditions_text('detector')}"
    return shared_namespace


def boxes(namespace: Namespace, port: int, *flags: str) -> list[dict[str, object]]:
    """Returns the output of the sample client for the sample pictures."""
    with namespace.port_forward("detector", port) as url:
        command = [sys.executable, DETECTION / "client" / "detect.py", "--url", url, *flags, *PICTURES]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]


@pytest.mark.path
def test_returns_the_same_boxes_over_http_and_grpc(detector: Namespace) -> None:
    by_http = boxes(detector, 8000)
    assert len(by_http) == len(PICTURES)
    assert all(answer["detections"] for answer in by_http), "every sample picture has detections"
    assert boxes(detector, 8000, "--raw") == by_http
    assert boxes(detector, 8001, "--grpc") == by_http


@pytest.mark.path
def test_the_status_shows_every_model_and_the_digest(detector: Namespace) -> None:
    status = detector.api.get("TritonModel", "detector")["status"]
    assert {m["name"] for m in status["models"]} == {p.name for p in (DETECTION / "repository").iterdir() if p.is_dir()}
    assert {m["state"] for m in status["models"]} == {"READY"}
    assert status["loaded"] == f"{len(status['models'])}/{len(status['models'])}"
    assert re.fullmatch(r"2\.\d+\.\d+", status["serverVersion"])
    kustomization = yaml.safe_load((ROOT / "manifests/overlays/local-sample/kustomization.yaml").read_text())
    assert status["image"]["digest"] in kustomization["patches"][0]["patch"]


def test_kubectl_get_shows_ready_models_and_replicas(detector: Namespace) -> None:
    header, line = detector.kubectl("get", "tritonmodels", "detector").splitlines()
    row = dict(zip(header.split(), line.split(), strict=False))
    models = len(detector.api.get("TritonModel", "detector")["status"]["models"])
    assert (row["READY"], row["MODELS"], row["REPLICAS"]) == ("True", f"{models}/{models}", "1")


@pytest.mark.path
def test_kubectl_triton_status_shows_the_status(detector: Namespace) -> None:
    process = subprocess.run(
        [ROOT / ".venv" / "bin" / "kubectl-triton", "status", "detector", "-n", detector.name],
        capture_output=True, text=True, check=False, env={**os.environ, "KUBECONFIG": str(detector.cluster.kubeconfig)},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert "Ready" in process.stdout
    assert "postprocess" in process.stdout


@pytest.fixture(scope="module")
def delivered(cluster: Cluster, shared_namespace: Namespace) -> dict[tuple[str, str], str]:
    """Starts a server for each base image and delivery. Returns the names of the TritonModels."""
    names = {way: f"{way[0].partition(':')[0]}-{way[1].lower()}" for way in WAYS}
    for (base, delivery), name in names.items():
        image = {"reference": cluster.image("echo", "v1", base), "delivery": delivery}
        shared_namespace.api.apply(shared_namespace.model(name, "", modelImage=image))
    for name in names.values():
        shared_namespace.wait_until_complete(name)
    return names


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_serves_images_with_every_base_and_delivery(
    cluster: Cluster, shared_namespace: Namespace, delivered: dict[tuple[str, str], str], way: tuple[str, str]
) -> None:
    name, (base, delivery) = delivered[way], way
    with shared_namespace.port_forward(name, 8000) as url:
        import tritonclient.http as triton

        with triton.InferenceServerClient(url) as client:
            tensor = triton.InferInput("INPUT", [1], "INT32")
            import numpy as np

            tensor.set_data_from_numpy(np.array([42], np.int32))
            answer = client.infer("echo", [tensor])
    assert (answer.as_numpy("OUTPUT")[0], answer.as_numpy("VERSION")[0]) == (42, b"v1")

    status = shared_namespace.api.get("TritonModel", name)["status"]
    assert status["image"]["digest"] == cluster.image("echo", "v1", base).partition("@")[2]
    assert status["image"]["delivery"] == delivery
    volumes = {v["name"]: v for v in shared_namespace.pods(name)[0]["spec"]["volumes"]}
    assert ("image" in volumes["models"]) == (delivery == "ImageVolume")


def test_the_status_shows_the_digest_of_a_tag(cluster: Cluster, namespace: Namespace) -> None:
    digest = cluster.image("echo", "v1").partition("@")[2]
    name = cluster.image("echo", "v1").partition("@")[0] + ":v1"
    # The node may have another image with this tag, from an earlier version of the repository.
    image = namespace.deploy("tagged", "", modelImage={"reference": name, "pullPolicy": "Always"})["status"]["image"]
    assert (image["reference"], image["digest"]) == (name, digest)


def test_loads_only_the_given_models_with_explicit_model_control(cluster: Cluster, namespace: Namespace) -> None:
    model = namespace.deploy("one", cluster.image("echo"), server={"modelControl": "explicit", "loadModels": ["echo"]})
    assert [m["name"] for m in model["status"]["models"] if m["state"] == "READY"] == ["echo"]
    assert condition(model, "ModelsLoaded")["status"] == "True"
