"""All pods that the operator creates or that are installed meet the restricted Pod Security Standard, on a real API
server, and have a stricter security context than it requires."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.api import Api, Object
from support.controlplane import ROOT, ControlPlane
from support.dockerfiles import DOCKERFILES
from support.people import dry_run, refusal
from triton_operator.api import names
from triton_operator.api.types import TritonModel
from triton_operator.render import Facts, render
from triton_operator.render.exporters import EXPORTERS

LOOSENED = {"pod-template"}
"""Cases whose pod template adds a container without a security context."""
CASES = sorted(p.parent for p in (ROOT / "tests/golden/cases").glob("*/model.yaml"))
SAMPLES = sorted(p for p in (ROOT / "manifests/samples").rglob("*.yaml") if p.name != "kustomization.yaml")
INSTALLED = ["manifests/default", "manifests/monitoring/adapter"]
MONITORING = "hack/monitoring"


def rendered(file: Path) -> Iterator[Object]:
    """Yields the Deployments of the TritonModels in a file, for each delivery."""
    for document in yaml.safe_load_all(file.read_text()):
        if document and document["kind"] == "TritonModel":
            metadata = {"namespace": "x", **document["metadata"], "uid": "u"}
            model = TritonModel.model_validate({**document, "metadata": metadata})
            for delivery in ("Copy", "ImageVolume"):
                yield from deployments(render(model, Facts("operator:1", delivery)))  # type: ignore[arg-type]


def installed(folder: str) -> Iterator[Object]:
    out = subprocess.run(["kubectl", "kustomize", ROOT / folder], capture_output=True, text=True, check=True).stdout
    yield from deployments(yaml.safe_load_all(out))


def deployments(objects: Any) -> Iterator[Object]:
    yield from (o for o in objects if o["kind"] == "Deployment")


def pod(deployment: Object, **changes: Any) -> Object:
    template = deployment["spec"]["template"]
    metadata = {**template["metadata"], "name": "as-deployed"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], **changes}}


@pytest.fixture(scope="module")
def restricted(plane: ControlPlane) -> Api:
    """A namespace that enforces the restricted Pod Security Standard."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": "restricted", "labels": labels}
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    # A sample uses this priority class.
    group = "/apis/scheduling.k8s.io/v1/priorityclasses"
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "serving"},
        "value": 1,
    }
    plane.api.request("POST", group, priority)
    return plane.api.in_namespace("restricted")


@pytest.mark.integration
def test_servers_meet_the_restricted_pod_security_standard(restricted: Api) -> None:
    files = [case / "model.yaml" for case in CASES if case.name not in LOOSENED] + SAMPLES
    pods = [pod(d) for file in files for d in rendered(file)]
    assert len(pods) >= 30
    for body in pods:
        assert not refusal(lambda o=body: dry_run(restricted, o)), body["metadata"]


@pytest.mark.integration
def test_always_pull_images_applies_to_all_images_of_a_server(restricted: Api) -> None:
    """Otherwise a server could start an image of another team that is already on the node."""
    for file in SAMPLES:
        for body in (pod(d) for d in rendered(file)):
            spec = restricted.request("POST", restricted.path("Pod") + "?dryRun=All", body)["spec"]
            containers = [*spec["containers"], *spec["initContainers"]]
            assert {c["imagePullPolicy"] for c in containers} == {"Always"}, body["metadata"]
            assert all(v["image"]["pullPolicy"] == "Always" for v in spec["volumes"] if "image" in v), body["metadata"]


@pytest.mark.integration
@pytest.mark.parametrize("folder", INSTALLED)
def test_installed_pods_meet_the_restricted_pod_security_standard(folder: str, restricted: Api) -> None:
    for deployment in installed(folder):
        assert not refusal(lambda d=deployment: dry_run(restricted, pod(d)))


@pytest.mark.integration
def test_pod_security_rejects_pods_that_a_user_made_less_secure(restricted: Api) -> None:
    (deployment, *_) = rendered(CASES[0] / "model.yaml")
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    host = {"name": "host", "hostPath": {"path": "/"}}
    for changes in ({"hostNetwork": True}, {"securityContext": {}}, {"volumes": [*volumes, host]}):
        assert 'violates PodSecurity "restricted' in refusal(
            lambda c=changes: dry_run(restricted, pod(deployment, **c))
        )
    (loose, *_) = rendered(next(c for c in CASES if c.name in LOOSENED) / "model.yaml")
    assert "violates PodSecurity" in refusal(lambda: dry_run(restricted, pod(loose)))


def containers(spec: Object) -> list[Object]:
    return [*spec.get("initContainers", []), *spec["containers"]]


def assert_hardened(spec: Object) -> None:
    context = spec["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context.get("runAsUser") != 0, "without it, it is the user of the image"
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(spec):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }, container["name"]
    assert not any(spec.get(field) for field in ("hostNetwork", "hostPID", "hostIPC"))
    assert not any("hostPath" in volume for volume in spec.get("volumes", []))


def test_every_container_of_a_server_is_hardened() -> None:
    for file in [case / "model.yaml" for case in CASES if case.name not in LOOSENED] + SAMPLES:
        for deployment in rendered(file):
            spec = deployment["spec"]["template"]["spec"]
            assert_hardened(spec)
            own = [c["name"] for c in containers(spec)]
            assert own[:4] == ["tools", "fetch", "check", "triton"]
            assert set(own[4:]) <= {names.CONTAINER_ANSWERS, *(exporter.container for exporter in EXPORTERS)}
            # No token, and no environment variables with other Services.
            assert spec["automountServiceAccountToken"] is False
            assert spec["enableServiceLinks"] is False
            assert {kind for volume in spec["volumes"] for kind in volume} <= {"name", "emptyDir", "image", "configMap"}


@pytest.mark.integration
def test_every_installed_container_is_hardened() -> None:
    workloads = [d for folder in INSTALLED for d in installed(folder)]
    assert {d["metadata"]["name"] for d in workloads} == {"triton-operator", "prometheus-adapter"}
    for deployment in workloads:
        assert_hardened(deployment["spec"]["template"]["spec"])


@pytest.mark.integration
def test_monitoring_is_hardened_and_mounts_no_unused_token() -> None:
    """prometheus-operator creates the pods of Prometheus and Alertmanager, and hardens their containers itself."""
    out = subprocess.run(["kubectl", "kustomize", ROOT / MONITORING], capture_output=True, text=True, check=True).stdout
    objects = [o for o in yaml.safe_load_all(out) if o["kind"] in ("Deployment", "Prometheus", "Alertmanager")]
    assert {o["kind"] for o in objects} == {"Deployment", "Prometheus", "Alertmanager"}
    for obj in objects:
        spec = obj["spec"]
        if obj["kind"] == "Deployment":
            spec = spec["template"]["spec"]
            assert_hardened(spec)
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True, obj["metadata"]
        assert context["runAsUser"] > 0
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        # A pod that uses the API server has its own service account with a token.
        assert "serviceAccountName" in spec or spec["automountServiceAccountToken"] is False, obj["metadata"]


def test_images_run_as_a_numeric_user() -> None:
    """The kubelet can't verify `runAsNonRoot` for a user name."""
    checked = 0
    for file in DOCKERFILES:
        last = file.read_text().rpartition("\nFROM ")[2]
        base, users = last.split()[0], re.findall(r"^USER (\S+)", last, re.MULTILINE)
        if base == "scratch" or "tests" in file.parts:
            continue  # a model repository: no program runs in it
        checked += 1
        assert users, file
        assert re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", users[-1]), file
    assert checked == 3
