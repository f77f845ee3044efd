"""`kubectl triton models`, `load`, `unload` and the others on running servers, as a developer of the namespace."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hack.world import settings
from support.api import condition, eventually
from support.cluster import ROOT, Cluster, Namespace

pytestmark = pytest.mark.e2e

Loader = Callable[..., AbstractContextManager[Any]]
EXPLICIT = {"modelControl": "explicit", "loadModels": ["echo"]}


@dataclass(frozen=True)
class Person:
    """A user of one namespace, with their own kubeconfig."""

    namespace: Namespace
    kubeconfig: Path

    def triton(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs `kubectl triton` in the namespace."""
        path = f"{ROOT / '.venv' / 'bin'}:{settings.search_path()}"
        environment = {**os.environ, "PATH": path, "KUBECONFIG": str(self.kubeconfig)}
        command = ["kubectl", "triton", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def bind(self, role: str) -> None:
        account = f"--serviceaccount={self.namespace.name}:developer"
        self.namespace.kubectl("create", "rolebinding", role, f"--clusterrole={role}", account)


@pytest.fixture
def developer(namespace: Namespace, tmp_path: Path) -> Person:
    """Creates a user with the role tritonmodel-developer only."""
    namespace.kubectl("create", "serviceaccount", "developer")
    config = json.loads(namespace.kubectl("config", "view", "--raw", "--minify", "--output=json"))
    token = namespace.kubectl("create", "token", "developer", "--duration=1h").strip()
    config["users"][0]["user"] = {"token": token}
    config["contexts"][0]["context"]["namespace"] = namespace.name
    person = Person(namespace, tmp_path / "kubeconfig")
    person.kubeconfig.write_text(json.dumps(config))
    person.bind("tritonmodel-developer")
    return person


def test_a_developer_changes_the_models_of_running_servers(
    cluster: Cluster, namespace: Namespace, developer: Person, load: Loader
) -> None:
    namespace.deploy("echo", cluster.image(change="two"), replicas=2, server=EXPLICIT)
    lives = _lives(namespace)
    result = developer.triton("models", "echo")
    assert result.returncode == 1
    assert "bind the ClusterRole tritonmodel-modelcontrol" in result.stderr
    developer.bind("tritonmodel-modelcontrol")
    eventually(
        lambda: developer.triton("models", "echo").returncode == 0, 60, lambda: developer.triton("models", "echo")
    )

    with load("echo") as traffic:
        result = developer.triton("reload", "echo", "echo")
        assert result.returncode == 0, result.stderr
        assert result.stdout.endswith("reloaded echo on 2 of 2 servers\n")
        result = developer.triton("load", "echo", "other")
        assert result.returncode == 0, result.stderr
        assert "other isn't in spec.server.loadModels" in result.stderr
        result = developer.triton("models", "echo")
        assert [line.split()[:4] for line in result.stdout.splitlines()[1:5]] == [
            [pod, model, "1", "READY"] for pod in sorted(lives) for model in ("echo", "other")
        ], result.stdout
        assert "not in spec.server.loadModels, so a restarted server doesn't load it: other" in result.stdout
        config = json.loads(developer.triton("config", "echo", "other", "--output=json").stdout)
        assert config["backend"] == "python"
        result = developer.triton("unload", "echo", "other")
        assert result.returncode == 0, result.stderr
        result = developer.triton("load", "echo", "nothing")
        assert result.returncode == 1
        assert "loaded nothing on 0 of 2 servers" in result.stdout
        assert all(f"{pod}: failed to load 'nothing'" in result.stderr for pod in lives), result.stderr
    assert traffic.failures() == []
    assert _lives(namespace) == lives
    assert condition(namespace.api.get("TritonModel", "echo"), "Ready")["status"] == "True"


def test_says_what_to_do_without_explicit_model_control(
    cluster: Cluster, namespace: Namespace, developer: Person
) -> None:
    namespace.deploy("echo", cluster.image())
    developer.bind("tritonmodel-modelcontrol")
    eventually(
        lambda: developer.triton("models", "echo").returncode == 0, 60, lambda: developer.triton("models", "echo")
    )
    result = developer.triton("load", "echo", "echo")
    assert result.returncode == 1
    assert "set modelControl: explicit" in result.stderr


def _lives(namespace: Namespace) -> dict[str, int]:
    """Returns the restarts of each server by pod."""
    return {
        p["metadata"]["name"]: sum(s["restartCount"] for s in p["status"]["containerStatuses"])
        for p in namespace.pods("echo")
    }
