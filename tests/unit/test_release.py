"""The parts of a release: archives, the kinds of the OLM bundle, krew's rules, and the version in all files."""

from __future__ import annotations

import ast
import base64
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from hack import stamps
from hack.release import archive, bundle, images, krew, project, sums

OLM_KINDS = {
    "ClusterServiceVersion", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Service",
    "ServiceAccount", "Role", "RoleBinding", "PrometheusRule", "ServiceMonitor", "Secret", "ConfigMap",
    "PodDisruptionBudget", "PriorityClass", "VerticalPodAutoscaler", "ConsoleYAMLSample", "ConsoleQuickStart",
    "ConsoleCLIDownload", "ConsoleLink", "ConsolePlugin", "NetworkPolicy", "PodMonitor",
}  # fmt: skip
"""From operator-registry, pkg/lib/bundle/supported_resources.go."""


def test_an_archive_depends_only_on_its_files(tmp_path: Path) -> None:
    files = {"b/two": b"2", "a": b"1"}
    for name in ("one", "other"):
        archive.write(tmp_path / name, dict(reversed(files.items())) if name == "one" else files, 100, frozenset({"a"}))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    with tarfile.open(tmp_path / "one") as tar:
        assert [(e.name, e.mode, e.mtime, e.uid) for e in tar] == [("a", 0o755, 100, 0), ("b/two", 0o644, 100, 0)]


def test_the_bundle_has_only_kinds_that_olm_installs_and_no_namespace() -> None:
    files = bundle.files("1.2.3")
    objects = [yaml.safe_load(text) for name, text in files.items() if name.startswith("manifests/")]
    assert {obj["kind"] for obj in objects} <= OLM_KINDS
    assert [obj["metadata"]["name"] for obj in objects if "namespace" in obj["metadata"]] == []
    # OLM refuses a bundle with an account that it creates itself.
    assert not [obj for obj in objects if obj["kind"] == "ServiceAccount"]
    dockerfile = files["bundle.Dockerfile"]
    metadata = yaml.safe_load(files["metadata/annotations.yaml"])["annotations"]
    assert dict(re.findall(r"^LABEL (\S+)=(\S+)$", dockerfile, re.MULTILINE)) == metadata


def test_the_operator_of_the_bundle_runs_the_image_of_the_release() -> None:
    csv = bundle.csv("1.2.3")
    image = "ghcr.io/triton-operator/operator:1.2.3"
    [deployment] = csv["spec"]["install"]["spec"]["deployments"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    env = {entry["name"]: entry for entry in container["env"]}
    assert (
        container["image"] == env["TOOLS_IMAGE"]["value"] == csv["metadata"]["annotations"]["containerImage"] == image
    )
    path = env["WATCH_NAMESPACES"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.annotations['olm.targetNamespaces']"


def test_the_release_has_every_image_that_a_sample_names() -> None:
    text = "".join(path.read_text() for path in sorted((project.MANIFESTS / "samples").rglob("*.yaml")))
    named = set(re.findall(rf"{project.IMAGES}/([a-z-]+):", text))
    assert len(named) > 2
    assert named <= {image.name for image in images.ALL}


def test_the_plugin_keeps_the_rules_of_krew(tmp_path: Path) -> None:
    """Those of `validate-krew-manifest`: names, versions, selectors, the checksum, the program and the licence."""
    wheel = tmp_path / "triton_operator-1.2.3-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    krew.write(tmp_path, "1.2.3", wheel, 100)
    manifest = yaml.safe_load((tmp_path / "triton.yaml").read_text())
    assert (manifest["metadata"]["name"], manifest["spec"]["version"]) == ("triton", "v1.2.3")
    assert 0 < len(manifest["spec"]["shortDescription"]) <= 50
    [platform] = manifest["spec"]["platforms"]
    file = tmp_path / platform["uri"].rpartition("/")[2]
    assert project.HOME in platform["uri"]
    assert sums.digest(file) == platform["sha256"]
    [expression] = platform["selector"]["matchExpressions"]
    assert expression == {"key": "os", "operator": "In", "values": ["linux", "darwin"]}
    with tarfile.open(file) as tar:
        members = {entry.name: entry.mode for entry in tar}
    assert members[platform["bin"]] == 0o755
    assert {"LICENSE", "requirements.txt", wheel.name} <= members.keys()


@pytest.mark.parametrize("minor", [6, 8, 10])
def test_the_launcher_has_the_syntax_of_older_pythons(minor: int) -> None:
    """An older Python must reach the line that names the problem."""
    ast.parse((project.ROOT / "hack/release/launcher.py").read_text(), feature_version=(3, minor))


def test_the_version_of_every_released_image_is_written_by_make_generate() -> None:
    texts = [
        "image: ghcr.io/triton-operator/server:0.1.0\n",
        '    default="ghcr.io/triton-operator/operator:0.1.0-rc.1",\n',
        "- name: ghcr.io/triton-operator/operator\n  newTag: 0.1.0\n",
        "`docker build -t REGISTRY/perf-analyzer:0.1.0 -f`",
        "env:\n        VERSION: 0.1.0\n",
    ]
    for text in texts:
        assert stamps.stamped(text, "9.8.7-rc.2") == re.sub(r"0\.1\.0(-rc\.1)?", "9.8.7-rc.2", text)
    untouched = "image: ghcr.io/other/server:0.1.0\nimage: ghcr.io/triton-operator/operator@sha256:12\n"
    assert stamps.stamped(untouched, "9.8.7") == untouched


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--version=next"], "isn't a semantic version"),
        (["--version=99.0.0"], "Write 99.0.0 there, run `make generate`"),
        (["--dirty", "--out=."], "isn't empty"),
    ],
)
def test_a_release_that_cannot_be_made_is_refused_with_the_remedy(arguments: list[str], words: str) -> None:
    command = [sys.executable, "-m", "hack.release", "--no-images", *arguments]
    result = subprocess.run(command, cwd=project.ROOT, capture_output=True, text=True, check=False)
    assert (result.returncode, words in result.stderr) == (1, True), result.stderr


BUILDX = "#!/bin/sh\ncase $2 in build) echo 'ERROR: failed to build: {error}' >&2; exit 1 ;; esac\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("OCI exporter is not supported for the docker driver.", "docker buildx create --use"),
        ("Multi-platform build is not supported for the docker driver.", "docker buildx create --use"),
        ("0.063 exec /bin/sh: exec format error", "needs QEMU"),
    ],
)
def test_a_builder_for_one_platform_is_refused_with_the_remedy(
    error: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_docker(tmp_path, monkeypatch, BUILDX.format(error=error))
    with pytest.raises(project.ReleaseError) as raised:
        images.build(tmp_path, "1.2.3", "registry.example", push=False)
    assert error in str(raised.value)
    assert words in str(raised.value)
    assert "DOCKER_BUILDKIT=0" in str(raised.value)


@pytest.mark.parametrize(
    ("buildx", "buildkit", "words"), [("exit 1", "1", "no plugin buildx"), ("exit 0", "0", "DOCKER_BUILDKIT is 0")]
)
def test_without_buildx_the_release_has_images_for_this_machine_and_says_so(
    buildx: str, buildkit: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_docker(tmp_path, monkeypatch, f'#!/bin/sh\n[ "$1" != buildx ] || {buildx}\n[ "$DOCKER_BUILDKIT" = 0 ]\n')
    monkeypatch.setenv("DOCKER_BUILDKIT", buildkit)
    [note], digests = images.build(tmp_path, "1.2.3", "registry.example", push=False)
    assert digests == {}
    assert note.startswith("images ONLY for linux/")
    assert words in note


def test_the_sbom_comes_from_the_builder_of_the_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_docker(tmp_path, monkeypatch, f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\n[ "$1" != run ] || echo {{}}\n')
    images.sbom(tmp_path / "sbom.json")
    assert (tmp_path / "sbom.json").read_text() == "{}\n"
    # A builder such as that of `docker buildx create` puts nothing into Docker without --load.
    assert "\nbuildx build --load --target sbom " in (tmp_path / "calls").read_text()


def fake_docker(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (folder / "docker").write_text(script)
    (folder / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("DOCKER_BUILDKIT", raising=False)


def test_a_key_that_cannot_sign_is_reported(tmp_path: Path) -> None:
    (tmp_path / "SHA256SUMS").write_text("")
    (tmp_path / "key").write_text("no key")
    with pytest.raises(project.ReleaseError, match="openssl"):
        sums.sign(tmp_path, tmp_path / "key")
    assert not (tmp_path / sums.SIGNATURE).exists()


def test_a_signature_is_base64_as_cosign_writes_it(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key], check=True)
    (tmp_path / "SHA256SUMS").write_text("12  file\n")
    sums.sign(tmp_path, key)
    # An ASN.1 sequence: ECDSA's two numbers.
    assert base64.b64decode((tmp_path / sums.SIGNATURE).read_text(), validate=True)[0] == 0x30
