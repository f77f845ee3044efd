"""The example pipelines bring a changed repository to running servers, and change nothing if it is broken."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from support.api import eventually
from support.cluster import IMAGES, ROOT, Cluster, Namespace
from support.pipeline import EXAMPLE, Pipeline

pytestmark = pytest.mark.e2e

Loader = Callable[..., AbstractContextManager[Any]]


def commit(folder: Path, change: str) -> None:
    """Writes this variant of the echo repository, with the Dockerfile of the template and the script."""
    shutil.copytree(IMAGES / "echo" / "repository", folder / "repository", dirs_exist_ok=True)
    shutil.copytree(IMAGES / "echo" / "changes" / change, folder / "repository", dirs_exist_ok=True)
    shutil.copy(ROOT / "model_images" / "template" / "Dockerfile", folder)
    shutil.copy(EXAMPLE / "deploy.sh", folder)


def test_a_commit_is_live_without_a_failed_request(
    cluster: Cluster, namespace: Namespace, load: Loader, tmp_path: Path
) -> None:
    namespace.deploy("echo", cluster.image(change="v1"))
    pipeline = Pipeline.of(namespace, tmp_path)
    # The folder that the workflow files name.
    folder = tmp_path / "detector"
    with load("echo") as traffic:
        for change, run in (("v2", pipeline.run_github), ("v3", pipeline.run_gitlab)):
            names = {pod["metadata"]["name"] for pod in namespace.pods("echo")}
            commit(folder, change)
            result = run("echo", tmp_path)
            assert result.returncode == 0, result.stdout + result.stderr
            status = namespace.api.get("TritonModel", "echo")["status"]
            assert f"{pipeline.image}@{status['image']['digest']} is live" in result.stdout
            # A gRPC connection stays on its server until that ends.
            eventually(
                lambda names=names: names.isdisjoint(pod["metadata"]["name"] for pod in namespace.api.list("Pod")),
                60,
                lambda names=names: f"{names} to end",
            )

        commit(folder, "bracket")
        spec = namespace.api.get("TritonModel", "echo")["spec"]
        result = pipeline.run("echo", folder)
        assert result.returncode == 1
        assert "nothing was changed" in result.stderr
        assert namespace.api.get("TritonModel", "echo")["spec"] == spec
    assert traffic.failures() == []
    assert set(traffic.result["http"]["versions"]) == set(traffic.result["grpc"]["versions"]) == {"v1", "v2", "v3"}
