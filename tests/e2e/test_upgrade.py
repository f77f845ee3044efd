"""An upgrade from the last release to this checkout, while a model serves.

The last release is the newest tag `v*` before this commit. FORMER=COMMIT names another commit, and FORMER=FOLDER the
downloaded files of a release.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import cluster as clusters
from support import released
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
def newer(cluster: Cluster) -> str:
    """Returns the image of this checkout's operator."""
    return cluster.operator_image


@pytest.fixture
def former(cluster: Cluster, newer: str, tmp_path: Path) -> Iterator[str]:
    """Installs the last release from its install.yaml instead of this checkout, and returns the operator's image."""
    if not (version := last_release()):
        pytest.skip("there is no release before this commit; name a commit or a folder with FORMER")
    if Path(version).is_dir():
        dist = Path(version)
        [archive] = dist.glob("image-operator-*.tar")
        # Only the local registry gives the image a digest.
        context = tmp_path / "image"
        context.mkdir()
        (context / "Dockerfile").write_text(f"FROM {released.load_image(archive)}\n")
    else:
        dist = released.make_former(version, tmp_path)
        context = tmp_path / "sources"
    built = subprocess.run(
        [ROOT / "hack/image.sh", "operator", context],
        env={**os.environ, "TAG": "former"}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    image = built.stdout.strip()
    try:
        _remove(cluster)
        _install(cluster, (dist / "install.yaml").read_text(), image)
        yield image
    finally:
        clusters.ensure()


def _remove(cluster: Cluster) -> None:
    """Deletes the installation of this checkout, except the namespace."""
    objects = [obj for obj in yaml.safe_load_all(_manifests(cluster)) if obj["kind"] != "Namespace"]
    cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=yaml.safe_dump_all(objects))


def _install(cluster: Cluster, install: str, image: str) -> None:
    """Installs or upgrades the operator as a user does with install.yaml, but with this image."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=released.with_image(install, image))
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/triton-operator", "--timeout=120s")


def _manifests(cluster: Cluster) -> str:
    """Returns the install.yaml of this checkout."""
    return cluster.kubectl("kustomize", str(ROOT / "manifests" / "default"))


def test_an_upgrade_from_the_last_release_restarts_no_server(
    cluster: Cluster, namespace: Namespace, load: Loader, newer: str, former: str
) -> None:
    assert cluster.operator_image == former
    namespace.deploy("echo", cluster.image(change="v1"), replicas=2)
    before = {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
    with load("echo") as during:
        _install(cluster, _manifests(cluster), newer)
        assert cluster.operator_image == newer != former
        eventually(lambda: cluster.leader(), 60, "a leader")
        namespace.wait_until_complete("echo")
        assert {pod["metadata"]["uid"] for pod in namespace.pods("echo")} == before, "no server was replaced"

        # The new operator rolls out the next version.
        namespace.deploy("echo", cluster.image(change="v2"), replicas=2)
        eventually(lambda: len(namespace.api.list("Pod", "tritonoperator.io/model=echo")) == 2, 60, "the drain ends")
    assert during.failures() == []
    assert set(during.result["http"]["versions"]) == {"v1", "v2"}
