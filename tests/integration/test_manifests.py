"""A real API server accepts the installation and the samples."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.api import Api, eventually
from support.controlplane import ROOT, ControlPlane

pytestmark = pytest.mark.integration

MANIFESTS = ROOT / "manifests"
SAMPLES = sorted(p for p in (MANIFESTS / "samples").rglob("*.yaml") if p.name != "kustomization.yaml")


def kubectl(plane: ControlPlane, *arguments: str) -> str:
    result = subprocess.run(
        ["kubectl", f"--kubeconfig={plane.kubeconfig}", *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    kubectl(control_plane, "apply", "-k", str(MANIFESTS / "default"))
    yield control_plane
    # Other tests of the session write thresholds that the policies reject.
    kubectl(control_plane, "delete", "-k", str(MANIFESTS / "policies"))


def test_installation_is_idempotent(installed: ControlPlane) -> None:
    def versions() -> dict[str, str]:
        out = kubectl(installed, "get", "-k", str(MANIFESTS / "default"), "-o", "json")
        return {
            f"{o['kind']}/{o['metadata']['name']}": o["metadata"]["resourceVersion"] for o in json.loads(out)["items"]
        }

    before = versions()
    assert "Deployment/triton-operator" in before
    kubectl(installed, "apply", "-k", str(MANIFESTS / "default"))
    assert versions() == before


def test_tools_image_is_the_operators_image(installed: ControlPlane) -> None:
    for overlay in ("default", "overlays/dev"):
        documents = yaml.safe_load_all(kubectl(installed, "kustomize", str(MANIFESTS / overlay)))
        deployment = next(d for d in documents if d["kind"] == "Deployment")
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        env = {e["name"]: e.get("value") for e in container["env"]}
        assert env["TOOLS_IMAGE"] == container["image"]
        assert ":" in container["image"].rpartition("/")[2]


def test_kustomize_changes_the_images_of_a_tritonmodel(installed: ControlPlane, tmp_path: Path) -> None:
    """With the configuration that the documentation says to copy; without it, it changes none and says nothing."""
    files = {
        "detector.yaml": MANIFESTS / "samples/detector/detector.yaml",
        "config.yaml": ROOT / "examples/commit-to-live/kustomizeconfig.yaml",
    }
    for name, source in files.items():
        (tmp_path / name).write_text(source.read_text())
    replacements = {
        "detection": {"digest": f"sha256:{'a' * 64}"},
        "server": {"newName": "registry.example.com/s", "newTag": "2"},
    }
    images = [{"name": f"ghcr.io/triton-operator/{name}", **image} for name, image in replacements.items()]
    kustomization = {"resources": ["detector.yaml"], "images": images}

    def spec(**more: list[str]) -> Any:
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump({**kustomization, **more}))
        return yaml.safe_load(kubectl(installed, "kustomize", str(tmp_path)))["spec"]

    changed = spec(configurations=["config.yaml"])
    assert changed["modelImage"]["reference"] == f"ghcr.io/triton-operator/detection@sha256:{'a' * 64}"
    assert changed["server"]["image"] == "registry.example.com/s:2"
    assert spec()["server"]["image"].startswith("ghcr.io/")


def test_operators_pod_meets_the_restricted_pod_security_standard(installed: ControlPlane) -> None:
    api = installed.api.in_namespace("triton-operator")
    template = api.get("Deployment", "triton-operator")["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": "as-deployed"}}
    created = api.create(pod)
    assert created["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_operators_service_account_cannot_read_secrets_or_change_specs(installed: ControlPlane) -> None:
    def may(verb: str, resource: str, namespace: str, subresource: str = "") -> bool:
        group, _, plural = resource.rpartition("/")
        account = "system:serviceaccount:triton-operator:triton-operator"
        attributes = {
            "verb": verb,
            "group": group,
            "resource": plural,
            "namespace": namespace,
            "subresource": subresource,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": account, "groups": ["system:serviceaccounts"], "resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(installed.api.request("POST", path, review)["status"]["allowed"])

    assert eventually(lambda: may("patch", "apps/deployments", "team"), 10)
    assert may("patch", "tritonoperator.io/tritonmodels", "team", "status")
    assert may("update", "coordination.k8s.io/leases", "triton-operator") is False, "it may update only its own Lease"
    assert may("create", "coordination.k8s.io/leases", "triton-operator")
    assert may("create", "coordination.k8s.io/leases", "team") is False
    assert not any(may(verb, "secrets", "team") for verb in ("get", "list", "watch"))
    assert not any(may(verb, "pods", "team") for verb in ("create", "update", "patch"))
    assert not any(may("patch", "pods", "team", part) for part in ("ephemeralcontainers", "exec", "resize", "status"))
    assert may("patch", "tritonoperator.io/tritonmodels", "team") is False, "it may not change the spec"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda p: p.stem)
def test_api_server_accepts_every_sample(api: Api, sample: Path) -> None:
    documents = [d for d in yaml.safe_load_all(sample.read_text()) if d]
    assert documents
    for document in documents:
        created = api.create(document)
        # The API server drops unknown fields without an error.
        assert _within(document["spec"], created["spec"]), f"the CRD doesn't have all fields of {sample.name}"


def _within(part: object, whole: object) -> bool:
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(k in whole and _within(v, whole[k]) for k, v in part.items())
    return part == whole
