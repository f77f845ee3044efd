"""An upgrade from the last release to this checkout, while a model serves.

The last release is the newest tag `v*` before this commit. FORMER=COMMIT names another commit.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import cluster as clusters
from support.api import eventually
from support.cluster import NAMESPACE, ROOT, Cluster, Namespace

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

Loader = Callable[..., AbstractContextManager[Any]]


def last_release() -> str:
    """Returns FORMER, or the newest tag of a release before this commit, or "" if there is none."""
    tag = ["git", "describe", "--tags", "--match=v[0-9]*", "--abbrev=0", "HEAD^"]
    done = subprocess.run(tag, cwd=ROOT, capture_output=True, text=True, check=False)
    return os.environ.get("FORMER") or done.stdout.strip()


@pytest.fixture
def former(cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """Installs the operator of the last release instead of this checkout's, and returns its image."""
    if not (commit := last_release()):
        pytest.skip("there is no release before this commit; name a commit with FORMER")
    source = tmp_path / "former"
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        found.extractall(source)
    built = subprocess.run(
        [ROOT / "hack/image.sh", "operator", source],
        env={**os.environ, "TAG": "former"}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    image = built.stdout.strip()
    try:
        _remove(cluster)
        cluster.kubectl("apply", "-k", str(_overlay(source, image)))
        cluster.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/triton-operator", "--timeout=120s")
        yield image
    finally:
        clusters.ensure()


def _remove(cluster: Cluster) -> None:
    """Deletes the installation of this checkout, except the namespace."""
    text = cluster.kubectl("kustomize", str(ROOT / "manifests" / "default"))
    objects = [obj for obj in yaml.safe_load_all(text) if obj["kind"] != "Namespace"]
    cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=yaml.safe_dump_all(objects))


def _overlay(source: Path, image: str) -> Path:
    """Writes a kustomization of the former manifests with this image, and returns its folder."""
    repository, _, digest = image.partition("@")
    former = yaml.safe_load((source / "manifests/default/kustomization.yaml").read_text())
    [override] = former["images"]
    own = {
        "apiVersion": former["apiVersion"],
        "kind": former["kind"],
        "resources": ["../default"],
        "images": [{"name": override["name"], "newName": repository, "digest": digest}],
        "replacements": former["replacements"],
    }
    folder = source / "manifests" / "former"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(own))
    return folder


def test_an_upgrade_from_the_last_release_restarts_no_server(
    cluster: Cluster, namespace: Namespace, load: Loader, former: str
) -> None:
    assert cluster.operator_image == former
    namespace.deploy("echo", cluster.image(change="v1"), replicas=2)
    before = {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
    with load("echo") as during:
        clusters.ensure()
        assert cluster.operator_image != former
        eventually(lambda: cluster.leader(), 60, "a leader")
        namespace.wait_until_complete("echo")
        assert {pod["metadata"]["uid"] for pod in namespace.pods("echo")} == before, "no server was replaced"

        # The new operator rolls out the next version.
        namespace.deploy("echo", cluster.image(change="v2"), replicas=2)
        eventually(lambda: len(namespace.api.list("Pod", "tritonoperator.io/model=echo")) == 2, 60, "the drain ends")
    assert during.failures() == []
    assert set(during.result["http"]["versions"]) == {"v1", "v2"}
