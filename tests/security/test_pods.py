"""Every pod that is made or installed may run where Pod Security is restricted, by a real API server, and is
tighter than that asks for."""

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
from support.people import dry_run, refusal
from triton_operator.api.types import TritonModel
from triton_operator.render import Choices, render

LOOSENED = {"pod-template"}
"""Cases that ask for a container of their own, without a security context."""
CASES = sorted(p.parent for p in (ROOT / "tests/golden/cases").glob("*/model.yaml"))
SAMPLES = sorted(p for p in (ROOT / "manifests/samples").rglob("*.yaml") if p.name != "kustomization.yaml")
INSTALLED = ["manifests/default", "manifests/monitoring/adapter"]
MONITORING = "hack/monitoring"
# Those of hack/world make stand-ins for public images, which run as those do.
ELSEWHERE = {".venv", ".cache", "world"}
DOCKERFILES = sorted(p for p in ROOT.rglob("Dockerfile*") if not ELSEWHERE & set(p.relative_to(ROOT).parts))


def rendered(file: Path) -> Iterator[Object]:
    """The Deployments of the TritonModels in a file, with both ways of delivery."""
    for document in yaml.safe_load_all(file.read_text()):
        if document and document["kind"] == "TritonModel":
            metadata = {"namespace": "x", **document["metadata"], "uid": "u"}
            model = TritonModel.model_validate({**document, "metadata": metadata})
            for delivery in ("Copy", "ImageVolume"):
                yield from only(render(model, Choices("operator:1", delivery)))  # type: ignore[arg-type]


def installed(folder: str) -> Iterator[Object]:
    out = subprocess.run(["kubectl", "kustomize", ROOT / folder], capture_output=True, text=True, check=True).stdout
    yield from only(yaml.safe_load_all(out))


def only(objects: Any) -> Iterator[Object]:
    yield from (o for o in objects if o["kind"] == "Deployment")


def pod(deployment: Object, **changes: Any) -> Object:
    template = deployment["spec"]["template"]
    metadata = {**template["metadata"], "name": "as-deployed"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], **changes}}


@pytest.fixture(scope="module")
def restricted(plane: ControlPlane) -> Api:
    """A namespace that takes restricted pods only."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": "restricted", "labels": labels}
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    # Which a sample names.
    group = "/apis/scheduling.k8s.io/v1/priorityclasses"
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "serving"},
        "value": 1,
    }
    plane.api.request("POST", group, priority)
    return plane.api.within("restricted")


@pytest.mark.integration
def test_servers_may_run_where_pod_security_is_restricted(restricted: Api) -> None:
    files = [case / "model.yaml" for case in CASES if case.name not in LOOSENED] + SAMPLES
    pods = [pod(d) for file in files for d in rendered(file)]
    assert len(pods) >= 30
    for one in pods:
        assert not refusal(lambda o=one: dry_run(restricted, o)), one["metadata"]


@pytest.mark.integration
@pytest.mark.parametrize("folder", INSTALLED)
def test_what_is_installed_may_run_where_pod_security_is_restricted(folder: str, restricted: Api) -> None:
    for deployment in installed(folder):
        assert not refusal(lambda d=deployment: dry_run(restricted, pod(d)))


@pytest.mark.integration
def test_what_a_user_loosens_is_judged(restricted: Api) -> None:
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


def assert_tight(spec: Object) -> None:
    context = spec["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(spec):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }, container["name"]
    assert not any(spec.get(field) for field in ("hostNetwork", "hostPID", "hostIPC"))
    assert not any("hostPath" in volume for volume in spec.get("volumes", []))


def test_every_container_of_a_server_is_tight() -> None:
    for file in [case / "model.yaml" for case in CASES if case.name not in LOOSENED] + SAMPLES:
        for deployment in rendered(file):
            spec = deployment["spec"]["template"]["spec"]
            assert_tight(spec)
            assert [c["name"] for c in containers(spec)] == ["tools", "fetch", "check", "triton"]
            # No token, and no addresses of other Services.
            assert spec["automountServiceAccountToken"] is False
            assert spec["enableServiceLinks"] is False
            assert {kind for volume in spec["volumes"] for kind in volume} <= {"name", "emptyDir", "image"}


@pytest.mark.integration
def test_every_container_that_is_installed_is_tight() -> None:
    found = [d for folder in INSTALLED for d in installed(folder)]
    assert {d["metadata"]["name"] for d in found} == {"triton-operator", "prometheus-adapter"}
    for deployment in found:
        assert_tight(deployment["spec"]["template"]["spec"])


@pytest.mark.integration
def test_monitoring_is_tight_and_has_no_token_that_it_does_not_need() -> None:
    """What is only for the monitoring: prometheus-operator makes these pods, and closes the containers itself."""
    out = subprocess.run(["kubectl", "kustomize", ROOT / MONITORING], capture_output=True, text=True, check=True).stdout
    objects = [o for o in yaml.safe_load_all(out) if o["kind"] in ("Deployment", "Prometheus", "Alertmanager")]
    assert {o["kind"] for o in objects} == {"Deployment", "Prometheus", "Alertmanager"}
    for one in objects:
        spec = one["spec"]
        if one["kind"] == "Deployment":
            spec = spec["template"]["spec"]
            assert_tight(spec)
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True, one["metadata"]
        assert context["runAsUser"] > 0
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        # Who asks the API server has an account of its own, and its token.
        assert "serviceAccountName" in spec or spec["automountServiceAccountToken"] is False, one["metadata"]


def test_images_run_as_a_user_by_number() -> None:
    """A name would be looked up in the image, and `runAsNonRoot` refuses it."""
    judged = 0
    for file in DOCKERFILES:
        last = file.read_text().rpartition("\nFROM ")[2]
        base, users = last.split()[0], re.findall(r"^USER (\S+)", last, re.MULTILINE)
        if base == "scratch" or "tests" in file.parts:
            continue  # a model repository, which is only ever read
        judged += 1
        assert users, file
        assert re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", users[-1]), file
    assert judged == 2
