"""spec.models in a cluster: with both deliveries, and when a value can't work."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from hack.world import settings
from support.api import condition
from support.cluster import ROOT, Cluster, Namespace, get

pytestmark = pytest.mark.e2e


def echo(**config: Any) -> list[Any]:
    return [{"name": "echo", "config": config}]


def served(namespace: Namespace) -> Any:
    """Returns the configuration with which a server runs the model."""
    with namespace.port_forward("echo", 8000) as url:
        code, body = get(f"http://{url}/v2/models/echo/config")
    assert code == 200, body
    return json.loads(body)


@pytest.mark.parametrize("delivery", ["Copy", "ImageVolume"])
def test_a_setting_reaches_the_servers_and_a_wrong_one_does_not(
    cluster: Cluster, namespace: Namespace, delivery: str
) -> None:
    groups = [{"kind": "KIND_CPU", "count": 2}]
    image = cluster.image(change="v1")
    model = {"modelImage": {"delivery": delivery}, "models": echo(instance_group=groups)}
    namespace.deploy("echo", image, **model)
    assert [group["count"] for group in served(namespace)["instance_group"]] == [2]
    printed = subprocess.run(
        [ROOT / ".venv/bin/kubectl-triton", "config", "echo", "echo", "-n", namespace.name],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": settings.search_path(), "KUBECONFIG": str(cluster.kubeconfig)},
    )  # fmt: skip
    assert "instance_group {  # spec.models" in printed.stdout, printed.stderr

    servers = {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
    wrong = echo(instance_group=groups, max_batch_size=-1)
    namespace.api.patch("TritonModel", "echo", {"spec": {"models": wrong}})
    told = namespace.wait_for_condition("echo", "Progressing", "False", "RepositoryInvalid")
    assert "spec.models[echo].config.max_batch_size: error TR108: max_batch_size is below 0: -1" in told
    assert servers < {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
    assert condition(namespace.api.get("TritonModel", "echo"), "Ready")["status"] == "True"
    assert [group["count"] for group in served(namespace)["instance_group"]] == [2]

    namespace.api.patch("TritonModel", "echo", {"spec": {"models": []}})
    namespace.wait_until_complete("echo")
    assert [group["count"] for group in served(namespace)["instance_group"]] == [1]
