"""`kubectl triton validate --with-server=cluster`: a real server in a pod of the user."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from hack.world import settings
from kubectl_triton.validate import server_pod
from support.api import eventually
from support.cluster import ROOT, Namespace

pytestmark = pytest.mark.e2e

CONFIG = """\
backend: "python"
input [{ name: "IN" data_type: TYPE_FP32 dims: [4] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [4] }]
instance_group [{ kind: KIND_CPU }]
"""
PROGRAM = """\
import json
import os

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        if "refuse" in json.loads(args["model_config"])["parameters"]:
            raise ValueError("the parameter of the spec is here")

    def execute(self, requests):
        values = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]) for value in values]
"""


def repository(root: Path) -> Path:
    """Writes a repository: `good`, and `dies`, whose process ends when it gets a request."""
    dies = PROGRAM.replace("        values =", "        os._exit(3)\n        values =")
    for name, program in (("good", PROGRAM), ("dies", dies)):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(CONFIG)
        (root / name / "1/model.py").write_text(program)
    return root


def command(namespace: Namespace, root: Path, *options: str | Path) -> subprocess.Popen[str]:
    arguments = ("--with-server=cluster", "-n", namespace.name, "--server-image", namespace.cluster.server_image)
    return subprocess.Popen(
        [ROOT / ".venv" / "bin" / "kubectl-triton", "validate", root, *arguments, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PATH": settings.search_path(), "KUBECONFIG": str(namespace.cluster.kubeconfig)},
    )


def has_no_pod(namespace: Namespace) -> bool:
    pods = [pod for pod in namespace.api.list("Pod") if server_pod.LABEL in pod["metadata"].get("labels", {})]
    return all("deletionTimestamp" in pod["metadata"] for pod in pods)


def test_reports_what_the_server_says_and_deletes_its_pod(namespace: Namespace, tmp_path: Path) -> None:
    (tmp_path / "tritonmodel.yaml").write_text(
        "{kind: TritonModel, metadata: {name: mixed}, spec: {modelImage: {reference: r}, entrypoint: good, "
        "server: {resources: {limits: {memory: 1Gi}, requests: {cpu: 20m, memory: 96Mi}}}, "
        "models: [{name: good, config: {parameters: {refuse: {string_value: a}}}}]}}"
    )
    root = repository(tmp_path / "models")
    with command(namespace, root) as process:
        output = process.communicate(timeout=240)[0]
    assert process.returncode == 1, output
    assert "dies: error TR907: each request" in output
    assert "good: " not in output
    assert "good/" not in output
    assert has_no_pod(namespace)
    with command(namespace, root, "--spec", tmp_path / "tritonmodel.yaml") as process:
        output = process.communicate(timeout=240)[0]
    assert process.returncode == 1, output
    assert "good/1/model.py:10: error TR901: tritonserver rejects 'good'" in output
    assert "the parameter of the spec is here" in output
    assert has_no_pod(namespace)


def test_a_stopped_command_deletes_its_pod(namespace: Namespace, tmp_path: Path) -> None:
    with command(namespace, repository(tmp_path)) as process:
        eventually(lambda: not has_no_pod(namespace), 60, "the pod")
        process.send_signal(signal.SIGTERM)
        output = process.communicate(timeout=60)[0]
    assert process.returncode == 2, output
    assert "Error: stopped" in output
    assert has_no_pod(namespace)


def test_a_namespace_that_refuses_the_pod_is_told(namespace: Namespace, tmp_path: Path) -> None:
    namespace.kubectl("create", "quota", "few", "--hard=limits.memory=1Mi")
    with command(namespace, repository(tmp_path)) as process:
        output = process.communicate(timeout=60)[0]
    assert process.returncode == 2, output
    assert "limits.memory" in output
    assert "Traceback" not in output
