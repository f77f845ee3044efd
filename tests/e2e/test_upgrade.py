"""An upgrade from the last release to this checkout, while a model serves.

The last release is the newest tag `v*` before this commit, or the commit EARLIER until there is a tag. FORMER=COMMIT
names another commit, and FORMER=FOLDER the downloaded files of a release.
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

pytestmark = [pytest.mark.e2e, pytest.mark.installation]

EARLIER = "53aef540837243a61a443454b9b3c0f72c980694"
"""A commit of the main branch whose operator and servers an upgrade must not disturb."""
Loader = Callable[..., AbstractContextManager[Any]]


@pytest.fixture
def release() -> str:
    """Returns FORMER, the newest tag of a release before this commit, or EARLIER."""
    if name := os.environ.get("FORMER"):
        return name
    if tag := _git("describe", "--tags", "--match=v[0-9]*", "--abbrev=0", "HEAD^"):
        return tag
    if not _git("rev-parse", "--verify", "--quiet", f"{EARLIER}^{{commit}}"):
        pytest.skip(f"this clone is too shallow: it has no commit {EARLIER}")
    return EARLIER


def _git(*arguments: str) -> str:
    """Returns the output of git, or "" if it fails."""
    process = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return process.stdout.strip() if process.returncode == 0 else ""


@pytest.fixture
def newer(cluster: Cluster, release: str, tmp_path: Path) -> str:
    """Builds the operator of this checkout, but with other pods, so that the pod template differs from every release's.

    Returns the image.
    """
    context = tmp_path / "newer"
    context.mkdir()
    (context / "sitecustomize.py").write_text(released.OTHER_PODS)
    lines = (f"FROM {cluster.operator_image}", "COPY sitecustomize.py /newer/", "ENV PYTHONPATH=/newer")
    (context / "Dockerfile").write_text("\n".join(lines))
    return _built("newer", context)


@pytest.fixture
def former(cluster: Cluster, release: str, newer: str, tmp_path: Path) -> Iterator[str]:
    """Installs the last release from its install.yaml instead of this checkout, and returns the operator's image."""
    if (dist := Path(release)).is_dir():
        [archive] = dist.glob("image-operator-*.tar")
        # Only the local registry gives the image a digest.
        context = tmp_path / "image"
        context.mkdir()
        (context / "Dockerfile").write_text(f"FROM {released.load_image(archive)}\n")
    else:
        dist = released.make_former(release, tmp_path)
        context = tmp_path / "sources"
    image = _built("former", context)
    try:
        _remove(cluster)
        _install(cluster, (dist / "install.yaml").read_text(), image)
        yield image
    finally:
        clusters.ensure()


def _built(tag: str, context: Path) -> str:
    """Builds and pushes an image of the operator, and returns its reference by digest."""
    command, env = [ROOT / "hack/image.sh", "operator", context], {**os.environ, "TAG": tag}
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


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
    servers = _servers(namespace)
    with load("echo") as traffic:
        _install(cluster, _manifests(cluster), newer)
        assert cluster.operator_image == newer != former
        cluster.wait_for_operator()
        eventually(lambda: _has_newer_template(namespace) or _servers(namespace) != servers, 60, "the operator's work")
        namespace.wait_until_complete("echo")
        assert _servers(namespace) == servers, "no server was replaced"

        # The new operator rolls out the next version, with its own pod template and its own image for init containers.
        namespace.deploy("echo", cluster.image(change="v2"), replicas=2)
        for pod in namespace.pods("echo"):
            assert pod["spec"]["hostname"] == "newer"
            assert newer in [container["image"] for container in pod["spec"]["initContainers"]]
        assert not _has_newer_template(namespace)
        eventually(lambda: len(namespace.api.list("Pod", "tritonoperator.io/model=echo")) == 2, 60, "the drain ends")
    assert traffic.failures() == []
    assert set(traffic.result["http"]["versions"]) == {"v1", "v2"}


def _has_newer_template(namespace: Namespace) -> bool:
    return bool(namespace.api.get("TritonModel", "echo")["status"].get("newerTemplate"))


def _servers(namespace: Namespace) -> set[str]:
    """Returns the uids of the servers' pods."""
    return {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
