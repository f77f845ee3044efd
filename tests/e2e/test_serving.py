"""What a client gets, through every way in which a repository reaches its server."""

from __future__ import annotations

import json
import os
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
    """The sample of manifests/samples, as `make demo` applies it."""
    overlay = ROOT / "manifests" / "overlays" / "local-sample"
    shared_namespace.kubectl("apply", "-k", str(overlay))
    told = shared_namespace.kubectl(
        "wait", "--for=condition=Ready", "tritonmodel/detector", "--timeout=300s", check=False
    )
    assert "condition met" in told, f"{told}\n{shared_namespace.told('detector')}"
    return shared_namespace


def boxes(namespace: Namespace, port: int, *flags: str) -> list[dict[str, object]]:
    """What the sample client prints for the sample pictures."""
    with namespace.forwarded("detector", port) as url:
        command = [sys.executable, DETECTION / "client" / "detect.py", "--url", url, *flags, *PICTURES]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_a_picture_goes_in_and_boxes_come_out_the_same_over_http_and_grpc(detector: Namespace) -> None:
    by_http = boxes(detector, 8000)
    assert len(by_http) == len(PICTURES)
    assert all(answer["detections"] for answer in by_http), "each sample picture shows something"
    assert boxes(detector, 8000, "--raw") == by_http
    assert boxes(detector, 8001, "--grpc") == by_http


def test_the_status_of_the_sample_names_every_model_and_its_digest(detector: Namespace) -> None:
    status = detector.api.get("TritonModel", "detector")["status"]
    assert {m["name"] for m in status["models"]} == {p.name for p in (DETECTION / "repository").iterdir() if p.is_dir()}
    assert {m["state"] for m in status["models"]} == {"READY"}
    assert status["loaded"] == f"{len(status['models'])}/{len(status['models'])}"
    applied = yaml.safe_load((ROOT / "manifests/overlays/local-sample/kustomization.yaml").read_text())
    assert status["image"]["digest"] in applied["patches"][0]["patch"]


def test_kubectl_shows_at_a_glance_how_it_is(detector: Namespace) -> None:
    header, line = detector.kubectl("get", "tritonmodels", "detector").splitlines()
    shown = dict(zip(header.split(), line.split(), strict=False))
    models = len(detector.api.get("TritonModel", "detector")["status"]["models"])
    assert (shown["READY"], shown["MODELS"], shown["REPLICAS"]) == ("True", f"{models}/{models}", "1")


def test_the_plugin_of_kubectl_says_the_same(detector: Namespace) -> None:
    done = subprocess.run(
        [ROOT / ".venv" / "bin" / "kubectl-triton", "status", "detector", "-n", detector.name],
        capture_output=True, text=True, check=False, env={**os.environ, "KUBECONFIG": str(detector.cluster.kubeconfig)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Ready" in done.stdout
    assert "postprocess" in done.stdout


@pytest.fixture(scope="module")
def delivered(cluster: Cluster, shared_namespace: Namespace) -> dict[tuple[str, str], str]:
    """A server for each way, all ready: (base, delivery) → name of the TritonModel."""
    names = {way: f"{way[0].partition(':')[0]}-{way[1].lower()}" for way in WAYS}
    for (base, delivery), name in names.items():
        image = {"reference": cluster.image("echo", "v1", base), "delivery": delivery}
        shared_namespace.api.apply(shared_namespace.model(name, "", modelImage=image))
    for name in names.values():
        shared_namespace.settled(name)
    return names


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_an_image_is_served_whatever_it_is_made_from_and_however_it_is_delivered(
    cluster: Cluster, shared_namespace: Namespace, delivered: dict[tuple[str, str], str], way: tuple[str, str]
) -> None:
    name, (base, delivery) = delivered[way], way
    with shared_namespace.forwarded(name, 8000) as url:
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


def test_a_tag_is_told_with_the_digest_that_runs(cluster: Cluster, namespace: Namespace) -> None:
    digest = cluster.image("echo", "v1").partition("@")[2]
    tagged = cluster.image("echo", "v1").partition("@")[0] + ":v1"
    image = namespace.deploy("tagged", tagged)["status"]["image"]
    assert (image["reference"], image["digest"]) == (tagged, digest)


def test_only_the_entrypoint_is_waited_for(cluster: Cluster, namespace: Namespace) -> None:
    """Explicit control: what isn't asked for isn't loaded, and what is can be called."""
    found = namespace.deploy("one", cluster.image("echo"), server={"modelControl": "explicit", "loadModels": ["echo"]})
    assert [m["name"] for m in found["status"]["models"] if m["state"] == "READY"] == ["echo"]
    assert condition(found, "ModelsLoaded")["status"] == "True"
