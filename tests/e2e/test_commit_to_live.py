"""The example pipeline brings a changed repository to running servers, and changes nothing if it is broken."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from support.cluster import IMAGES, ROOT, Cluster, Namespace
from support.pipeline import Pipeline

pytestmark = pytest.mark.e2e

Loader = Callable[..., AbstractContextManager[Any]]


def commit(folder: Path, change: str) -> None:
    """Writes this variant of the echo repository, with the Dockerfile of the template."""
    shutil.copytree(IMAGES / "echo" / "repository", folder / "repository", dirs_exist_ok=True)
    shutil.copytree(IMAGES / "echo" / "changes" / change, folder / "repository", dirs_exist_ok=True)
    shutil.copy(ROOT / "model_images" / "template" / "Dockerfile", folder)


def test_a_commit_is_live_without_a_failed_request(
    cluster: Cluster, namespace: Namespace, load: Loader, tmp_path: Path
) -> None:
    namespace.deploy("echo", cluster.image(change="v1"))
    pipeline = Pipeline.of(namespace, tmp_path)
    with load("echo") as during:
        commit(tmp_path / "echo", "v2")
        done = pipeline.run("echo", tmp_path / "echo")
        assert done.returncode == 0, done.stdout + done.stderr
        status = namespace.api.get("TritonModel", "echo")["status"]
        assert f"{pipeline.image}@{status['image']['digest']} is live" in done.stdout

        commit(tmp_path / "echo", "bracket")
        before = namespace.api.get("TritonModel", "echo")["spec"]
        done = pipeline.run("echo", tmp_path / "echo")
        assert done.returncode == 1
        assert "nothing was changed" in done.stderr
        assert namespace.api.get("TritonModel", "echo")["spec"] == before
    assert during.failures() == []
    assert set(during.result["http"]["versions"]) == set(during.result["grpc"]["versions"]) == {"v1", "v2"}
