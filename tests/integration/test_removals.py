"""Fields of the operator that a user doesn't want, by the tools that users have."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import controlplane, gen, operator_process
from support.api import Api, Object, eventually
from support.controlplane import ControlPlane
from support.people import make, tritonmodel

pytestmark = pytest.mark.integration

FS_GROUP, USER, LIVENESS = (
    "spec.securityContext.fsGroup",
    "spec.securityContext.runAsUser",
    "spec.containers.triton.livenessProbe",
)
Kubectl = Callable[..., str]


@pytest.fixture
def operator(control_plane: ControlPlane, api: Api, tmp_path: Path) -> Iterator[None]:
    kubeconfig = operator_process.install(control_plane)
    with operator_process.running(kubeconfig, tmp_path, WATCH_NAMESPACES=api.namespace):
        yield


@pytest.fixture
def kubectl(control_plane: ControlPlane, api: Api) -> Kubectl:
    def run(*arguments: str) -> str:
        command = ["kubectl", f"--kubeconfig={control_plane.kubeconfig}", f"--namespace={api.namespace}", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        return result.stdout if result.returncode == 0 else result.stderr

    return run


def pod(api: Api) -> Object:
    """Returns the spec of the pods, when the Deployment exists."""
    deployment: Object = eventually(lambda: api.find("Deployment", gen.NAME), 60)
    return deployment["spec"]["template"]["spec"]


def left_out(api: Api) -> set[str]:
    """Returns which of the three fields the Deployment doesn't have."""
    spec = pod(api)
    context, server = spec["securityContext"], spec["containers"][0]
    return {
        *([FS_GROUP] if "fsGroup" not in context else []),
        *([USER] if "runAsUser" not in context else []),
        *([LIVENESS] if "livenessProbe" not in server else []),
    }


@pytest.mark.parametrize("command", ["apply", "apply -k", "apply --server-side", "replace"])
@pytest.mark.usefixtures("operator")
def test_the_list_of_what_to_leave_out_is_created_changed_and_removed(
    command: str, api: Api, kubectl: Kubectl, tmp_path: Path
) -> None:
    file = tmp_path / "model.yaml"
    (tmp_path / "kustomization.yaml").write_text("resources: [model.yaml]\n")
    flag = [] if command.endswith("-k") else ["-f"]
    target = str(tmp_path if command.endswith("-k") else file)
    for number, omitted in enumerate([[FS_GROUP, LIVENESS], [USER], []]):
        template: dict[str, Any] = {"spec": {"nodeSelector": {"a": "b"}}, **({"omit": omitted} if omitted else {})}
        file.write_text(yaml.safe_dump(tritonmodel(gen.NAME, podTemplate=template)))
        verb = ["create"] if command == "replace" and number == 0 else command.split()
        output = kubectl(*verb, *flag, target)
        assert f"tritonmodel.tritonoperator.io/{gen.NAME} " in output, output
        eventually(lambda o=omitted: left_out(api) == set(o), 60, lambda o=omitted: (o, left_out(api)))
    assert "supported values" in kubectl("patch", "tritonmodel", gen.NAME, "--type=merge", "--patch",
                                         '{"spec": {"podTemplate": {"omit": ["spec.containers"]}}}')  # fmt: skip


NULL = {"spec": {"securityContext": {"fsGroup": None}}}


@pytest.mark.parametrize(
    ("command", "carries"),
    [("apply", False), ("apply -k", False), ("apply --server-side", True), ("create", True)],
)
@pytest.mark.usefixtures("operator")
def test_only_some_tools_carry_a_null(command: str, carries: bool, api: Api, kubectl: Kubectl, tmp_path: Path) -> None:
    """As docs/openshift.md says."""
    (tmp_path / "kustomization.yaml").write_text("resources: [model.yaml]\n")
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(tritonmodel(gen.NAME, podTemplate=NULL)))
    target = [str(tmp_path)] if command.endswith("-k") else ["-f", str(tmp_path / "model.yaml")]
    kubectl(*command.split(), *target)
    assert left_out(api) == ({FS_GROUP} if carries else set())


@pytest.mark.usefixtures("operator")
def test_another_source_of_a_volume_is_accepted(api: Api) -> None:
    """Not as a second source, which Kubernetes refuses."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    probe = {"name": "triton", "livenessProbe": {"tcpSocket": {"port": "http"}}}
    make(api, podTemplate={"spec": {"volumes": [volume], "containers": [probe]}})
    spec = pod(api)
    (tmp,) = (v for v in spec["volumes"] if v["name"] == "tmp")
    assert tmp.keys() == {"name", "ephemeral"}
    assert spec["containers"][0]["livenessProbe"]["tcpSocket"] == {"port": "http"}


SCC = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "securitycontextconstraints.security.openshift.io"},
    "spec": {
        "group": "security.openshift.io",
        "scope": "Cluster",
        "names": {"kind": "SecurityContextConstraints", "plural": "securitycontextconstraints"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}},
        ],
    },
}


def test_a_cluster_with_openshifts_api_gets_no_fixed_ids(tmp_path: Path) -> None:
    with controlplane.running() as plane:
        plane.install_crds()
        plane.api.create(SCC)
        kubeconfig = operator_process.install(plane)
        api = plane.api.in_namespace("default")
        eventually(lambda: plane.api.request("GET", "/apis/security.openshift.io/v1")["resources"], 60)
        with operator_process.running(kubeconfig, tmp_path):
            make(api, podTemplate={"spec": {"securityContext": {"runAsGroup": 7}}})
            context = pod(api)["securityContext"]
    assert context == {
        "runAsNonRoot": True,
        "runAsGroup": 7,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
