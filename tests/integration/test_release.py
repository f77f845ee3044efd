"""A release, made in a temporary folder and used as a user would: sums, signature, charts, manifests, OLM bundle."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml

from hack.release import project, sums
from hack.release.__main__ import make
from hack.world import settings
from support import released
from support.api import Object
from support.cluster import ROOT
from support.controlplane import ControlPlane
from support.helm import CRDS, NAMESPACE, OPERATOR, by_key, kustomized, rendered

pytestmark = pytest.mark.release

VERSION = project.version()


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released.make(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def bundle(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    return released.unpack(dist / f"triton-operator-bundle-{VERSION}.tar.gz", folder) / "bundle"


def objects_of(bundle: Path) -> list[Object]:
    return [yaml.safe_load(path.read_text()) for path in sorted((bundle / "manifests").iterdir())]


def csv_of(bundle: Path) -> Object:
    [csv] = [obj for obj in objects_of(bundle) if obj["kind"] == "ClusterServiceVersion"]
    return csv


def test_the_checksums_and_the_signature_verify_until_a_byte_changes(dist: Path, tmp_path: Path) -> None:
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=dist, capture_output=True, check=False).returncode == 0
    listed = {line.split("  ")[1] for line in (dist / "SHA256SUMS").read_text().splitlines()}
    assert listed == {p.name for p in dist.iterdir()} - {"SHA256SUMS", "SHA256SUMS.sig"}
    signature = tmp_path / "signature"
    signature.write_bytes(base64.b64decode((dist / "SHA256SUMS.sig").read_text()))
    verify = ("dgst", "-sha256", "-verify", dist.parent / "release.pub", "-signature", signature)
    assert released.openssl(*verify, dist / "SHA256SUMS")

    changed = tmp_path / "dist"
    changed.mkdir()
    for path in dist.iterdir():
        (changed / path.name).write_bytes(path.read_bytes())
    (changed / "policies.yaml").write_text((dist / "policies.yaml").read_text().replace("Fail", "Fall", 1))
    assert subprocess.run(check, cwd=changed, capture_output=True, check=False).returncode != 0
    digest = hashlib.sha256((changed / "policies.yaml").read_bytes()).hexdigest()
    former = hashlib.sha256((dist / "policies.yaml").read_bytes()).hexdigest()
    (changed / "SHA256SUMS").write_text((dist / "SHA256SUMS").read_text().replace(former, digest))
    assert subprocess.run(check, cwd=changed, capture_output=True, check=False).returncode == 0
    assert not released.openssl(*verify, changed / "SHA256SUMS")


@pytest.fixture(scope="module")
def signed_by_cosign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released.make_with_cosign(tmp_path_factory.mktemp("cosign"))


def downloaded(dist: Path, folder: Path) -> Path:
    """Returns a copy of a release, with the public key as in the page's commands."""
    shutil.copytree(dist, folder)
    shutil.copy(dist.parent / "release.pub", folder)
    return folder


def refused(folder: Path) -> list[str]:
    """Runs the commands of the page in this folder. Returns the programs of those that fail."""
    _, _, section = (ROOT / "docs" / "releases.md").read_text().partition("\n## Check a release\n")
    section, _, _ = section.partition("\n## ")
    # In a block of code, every second part is code.
    blocks = [block.removeprefix("console\n").strip() for block in section.split("```")[1::2]]
    commands = [command for block in blocks for command in block.splitlines()]
    env = {**os.environ, "PATH": settings.search_path()}
    results = [
        subprocess.run(["bash", "-c", c], cwd=folder, env=env, capture_output=True, check=False) for c in commands
    ]
    programs = ["sha256sum", "cosign", "openssl"]
    assert [program for program in programs if any(program in command for command in commands)] == programs
    return [name for name, result in zip(programs, results, strict=True) if result.returncode]


def test_cosign_signs_a_release_and_refuses_a_changed_file(signed_by_cosign: Path, tmp_path: Path) -> None:
    folder = downloaded(signed_by_cosign, tmp_path / "dist")
    assert refused(folder) == []
    # openssl reads cosign's signature: both are the same format.
    changed = folder / "policies.yaml"
    former = sums.digest(changed)
    changed.write_text(changed.read_text().replace("Fail", "Fall", 1))
    assert refused(folder) == ["sha256sum"]
    (folder / "SHA256SUMS").write_text((folder / "SHA256SUMS").read_text().replace(former, sums.digest(changed)))
    assert refused(folder) == ["cosign", "openssl"]


def test_cosign_verifies_a_signature_of_openssl_but_not_with_another_key(
    dist: Path, signed_by_cosign: Path, tmp_path: Path
) -> None:
    folder = downloaded(dist, tmp_path / "dist")
    assert refused(folder) == []
    shutil.copy(signed_by_cosign.parent / "release.pub", folder)
    assert refused(folder) == ["cosign", "openssl"]


def test_a_wrong_password_of_the_key_leaves_no_signature(
    signed_by_cosign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / sums.SUMS).write_text("12  file\n")
    monkeypatch.setenv("COSIGN_PASSWORD", "another")
    with pytest.raises(project.ReleaseError, match="cosign"):
        sums.sign(tmp_path, signed_by_cosign.parent / "cosign.key")
    assert not (tmp_path / sums.SIGNATURE).exists()


def test_the_chart_packages_render_what_the_charts_render(dist: Path) -> None:
    for chart in (OPERATOR, CRDS):
        assert rendered(dist / f"{chart.name}-{VERSION}.tgz") == rendered(chart)


def test_the_install_manifests_are_those_of_kustomize_with_the_image_of_the_release(dist: Path) -> None:
    installed = by_key((dist / "install.yaml").read_text())
    assert installed == kustomized("default")
    deployment = installed["Deployment", NAMESPACE, "triton-operator"]
    images = [c["image"] for c in deployment["spec"]["template"]["spec"]["containers"]]
    assert images == [f"ghcr.io/triton-operator/operator:{VERSION}"]
    assert by_key((dist / "policies.yaml").read_text()) == kustomized("policies")


def test_what_installs_names_pushed_images_by_the_digests_in_the_signed_list(tmp_path: Path) -> None:
    digests = {"operator": f"sha256:{'1' * 64}", "server": f"sha256:{'2' * 64}", "detection": f"sha256:{'3' * 64}",
               "perf-analyzer": f"sha256:{'4' * 64}"}  # fmt: skip
    make(tmp_path, VERSION, project.time(), digests)
    pins = {f"{project.IMAGES}/{name}:{VERSION}": digest for name, digest in digests.items()}
    assert (tmp_path / "images.txt").read_text().splitlines() == [f"{i}@{d}" for i, d in pins.items()]
    sums.write(tmp_path)
    assert "  images.txt\n" in (tmp_path / "SHA256SUMS").read_text()
    operator, server, detection, perf_analyzer = (f"{image}@{digest}" for image, digest in pins.items())
    installed = list(yaml.safe_load_all((tmp_path / "install.yaml").read_text()))
    [container] = next(obj for obj in installed if obj["kind"] == "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["image"] == operator
    assert {"name": "TOOLS_IMAGE", "value": operator} in container["env"]
    detector = (tmp_path / "detector.yaml").read_text()
    assert server in detector
    assert detection in detector
    chart = released.unpack(tmp_path / f"triton-operator-{VERSION}.tgz", tmp_path / "chart") / "triton-operator"
    assert yaml.safe_load((chart / "values.yaml").read_text())["image"]["digest"] == digests["operator"]
    csv = csv_of(released.unpack(tmp_path / f"triton-operator-bundle-{VERSION}.tar.gz", tmp_path / "bundle") / "bundle")
    assert operator in str(csv)
    plugin = released.unpack(tmp_path / f"kubectl-triton-{VERSION}.tar.gz", tmp_path / "plugin")
    [wheel] = plugin.rglob("*.whl")
    command = zipfile.ZipFile(wheel).read("kubectl_triton/calibrate/command.py").decode()
    assert f'_IMAGE = "{perf_analyzer}"' in command


def test_the_bundle_contains_the_installation_except_what_olm_cannot_install(bundle: Path) -> None:
    """OLM creates the account and its roles from the CSV. The user applies the policies."""
    everything = {(kind, name) for kind, _, name in kustomized("default")}
    policies = {(kind, name) for kind, _, name in kustomized("policies")}
    # What the CSV contains, and the namespace.
    own = {(kind, "triton-operator") for kind in (
        "Namespace", "Deployment", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
    )}  # fmt: skip
    bundled = {(obj["kind"], obj["metadata"]["name"]) for obj in objects_of(bundle)}
    assert bundled - {("ClusterServiceVersion", f"triton-operator.v{VERSION}")} == everything - policies - own

    install = csv_of(bundle)["spec"]["install"]["spec"]
    manifests = kustomized("default")
    [deployment] = install["deployments"]
    plain = manifests["Deployment", NAMESPACE, "triton-operator"]
    assert without_watched(deployment["spec"]) == without_watched(plain["spec"])
    [cluster], [own_namespace] = install["clusterPermissions"], install["permissions"]
    assert cluster["rules"] == manifests["ClusterRole", "", "triton-operator"]["rules"]
    assert own_namespace["rules"] == manifests["Role", NAMESPACE, "triton-operator"]["rules"]


def without_watched(spec: Object) -> Object:
    """Returns the Deployment's spec without the variable that OLM sets to the namespaces."""
    [container] = spec["template"]["spec"]["containers"]
    env = [entry for entry in container["env"] if entry["name"] != "WATCH_NAMESPACES"]
    pod = {**spec["template"]["spec"], "containers": [{**container, "env": env}]}
    return {**spec, "template": {**spec["template"], "spec": pod}}


def test_the_api_server_accepts_the_bundle(bundle: Path, control_plane: ControlPlane, namespace: str) -> None:
    """With the CRD of ClusterServiceVersions of OLM. Unknown fields are errors."""
    control_plane.install_olm()
    arguments = ["apply", "--server-side", "--force-conflicts", "--validate=strict", f"--namespace={namespace}"]
    kubectl = ["kubectl", f"--kubeconfig={control_plane.kubeconfig}", *arguments, "-f"]
    result = subprocess.run([*kubectl, bundle / "manifests"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    # The CRD checks less of the Deployment than the API server.
    [deployment] = csv_of(bundle)["spec"]["install"]["spec"]["deployments"]
    obj = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "olm"}, "spec": deployment["spec"]}
    result = subprocess.run([*kubectl, "-"], input=yaml.safe_dump(obj), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
