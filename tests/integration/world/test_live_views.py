"""`kubectl triton status --watch` and `kubectl triton top --once` with a real API server and the operator."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration.world.steps import SOON, progressing, wait_until_observed
from support import children, gen
from support.api import Api, eventually
from support.controlplane import ControlPlane
from support.kubelet import add_pod
from support.operator_process import Operator
from support.people import make

pytestmark = pytest.mark.integration

GOOD = gen.checked(gen.report("pre", "detection", entrypoint="detection"))
SERVING = (GOOD, gen.put("status.podIP", ""))
PULLING = 'Pulling image "registry.example.com/detection:v1"'


def start(plane: ControlPlane, namespace: str, *arguments: str, out: Any) -> subprocess.Popen[bytes]:
    """Starts `kubectl triton` as the cluster admin."""
    env = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "PYTHONUNBUFFERED": "1"}
    command = [str(Path(sys.executable).parent / "kubectl-triton"), *arguments, f"--namespace={namespace}"]
    return children.start(command, env=env, stdout=out, stderr=subprocess.STDOUT)


def scaled(api: Api) -> None:
    """Writes the status of the Deployment, as its controller does."""
    deployment = api.get("Deployment", gen.NAME)
    deployment["status"] = {"observedGeneration": deployment["metadata"]["generation"], "replicas": 1}
    api.request("PUT", api.path("Deployment", gen.NAME) + "/status", deployment)


def report_pull(api: Api) -> None:
    """Posts the Event of a pull, as the kubelet does."""
    pod = api.get("Pod", "detection-abc-1")["metadata"]
    regarding = {"kind": "Pod", "name": pod["name"], "namespace": api.namespace, "uid": pod["uid"]}
    event = {"metadata": {"name": "pull"}, "involvedObject": regarding, "reason": "Pulling", "message": PULLING,
             "type": "Normal", "lastTimestamp": "2026-01-01T00:00:00Z"}  # fmt: skip
    api.create({"apiVersion": "v1", "kind": "Event", **event})


def test_watch_follows_a_start_until_it_is_ready(
    api: Api, operator: Operator, control_plane: ControlPlane, tmp_path: Path
) -> None:
    make(api, entrypoint="detection")
    wait_until_observed(api)
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = start(control_plane, api.namespace, "status", gen.NAME, "--watch", "--timeout=60", out=out)
    try:
        add_pod(api, gen.state("fetch", state={"waiting": {"reason": "PodInitializing"}}))
        report_pull(api)
        eventually(lambda: PULLING in log.read_text(), SOON, log.read_text)
        add_pod(api, gen.state("check", state={"running": {}}))
        assert process.poll() is None, log.read_text()
        add_pod(api, *SERVING)
        scaled(api)
        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert "■■■■■■ serving" in log.read_text()
    assert log.read_text().endswith("detection is Ready: detection answers\n")


def test_watch_ends_with_2_after_the_timeout_and_with_1_without_the_tritonmodel(
    api: Api, operator: Operator, control_plane: ControlPlane
) -> None:
    make(api, entrypoint="detection")
    wait_until_observed(api)
    for name, code, words in ((gen.NAME, 2, "isn't Ready after 1 s"), ("missing", 1, '"missing" not found')):
        arguments = ("status", name, "--watch", "--timeout=1")
        process = start(control_plane, api.namespace, *arguments, out=subprocess.PIPE)
        output = process.communicate(timeout=30)[0].decode()
        assert (process.returncode, words in output) == (code, True), output


def test_top_once_shows_every_tritonmodel_and_one(api: Api, operator: Operator, control_plane: ControlPlane) -> None:
    make(api, annotations={"tritonoperator.io/max-qps": "80"}, entrypoint="detection")
    make(api, "other", entrypoint="detection")
    wait_until_observed(api)
    add_pod(api, *SERVING)
    scaled(api)
    progressing(api, "Complete")

    def top(*arguments: str) -> str:
        process = start(control_plane, api.namespace, "top", "--once", *arguments, out=subprocess.PIPE)
        output = process.communicate(timeout=30)[0].decode()
        assert process.returncode == 0, output
        return output

    rows = {line.split()[0]: line.split() for line in top().splitlines()}
    assert rows[f"{api.namespace}/{gen.NAME}"][1:5] == ["Ready", "-", "/", "80"]
    assert rows[f"{api.namespace}/other"][1] == "Creating"
    page = top(gen.NAME)
    assert "EntrypointAnswers" in page  # a condition, and an Event
    assert "detection-abc-1" in page
    assert "tritonoperator.io/max-qps" in page
    assert {"Conditions", "Thresholds", "Servers", "Events"} <= set(page.splitlines())
