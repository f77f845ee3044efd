"""A second group of servers (support/second_group.py), with real Triton servers and clients: no request fails."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from support import second_group
from support.api import Object, eventually
from support.cluster import NAMESPACE, Cluster, Namespace
from triton_operator.api import names

pytestmark = [pytest.mark.e2e, pytest.mark.operation]

Loader = Callable[..., AbstractContextManager[Any]]
OPERATOR, PROGRAM = "triton-operator", "second_group.py"


@pytest.fixture
def with_policy(cluster: Cluster) -> Iterator[None]:
    """Runs the operator with the policy that adds a second group."""
    api = cluster.api.in_namespace(NAMESPACE)
    before = api.get("Deployment", OPERATOR)["spec"]["template"]["spec"]
    program = Path(second_group.__file__).read_text()
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "policy"}, "data": {PROGRAM: program}})
    pod: Object = copy.deepcopy(before)
    (container,) = pod["containers"]
    container["command"], container["args"] = ["python", f"/policy/{PROGRAM}"], []
    container["env"] = [*container["env"], {"name": "PYTHONPATH", "value": "/opt/app"}]
    container["volumeMounts"] = [*container.get("volumeMounts", []), {"name": "policy", "mountPath": "/policy"}]
    pod["volumes"] = [*pod.get("volumes", []), {"name": "policy", "configMap": {"name": "policy"}}]

    def run(spec: Object) -> None:
        live = api.get("Deployment", OPERATOR)
        live["spec"]["template"]["spec"] = spec
        api.request("PUT", api.path("Deployment", OPERATOR), live)
        cluster.kubectl("-n", NAMESPACE, "rollout", "status", f"deployment/{OPERATOR}", "--timeout=180s")
        cluster.wait_for_operator()

    try:
        run(pod)
        yield
    finally:
        run(before)
        api.delete("ConfigMap", "policy")


def in_group(namespace: Namespace, name: str) -> set[str]:
    """Returns the uids of the servers of a group."""
    pods = [p for p in namespace.pods("echo") if p["metadata"]["labels"].get(names.LABEL_GROUP, "") == name]
    return {p["metadata"]["uid"] for p in pods}


def test_a_second_group_serves_and_ends_without_a_failed_request(
    cluster: Cluster, namespace: Namespace, load: Loader, with_policy: None
) -> None:
    namespace.deploy("echo", cluster.image(change="v1"))
    first = in_group(namespace, "")

    def annotate(image: str | None) -> None:
        namespace.api.patch("TritonModel", "echo", {"metadata": {"annotations": {second_group.ANNOTATION: image}}})

    def serves(servers: int) -> bool:
        status = namespace.wait_until_complete("echo")["status"]
        own = len(in_group(namespace, ""))
        return bool(status["readyReplicas"] == status["replicas"] == own and len(namespace.pods("echo")) == servers)

    with load("echo") as traffic:
        annotate(cluster.image(change="v2"))
        eventually(lambda: serves(3), 120, lambda: namespace.conditions_text("echo"))
        assert len(in_group(namespace, second_group.NAME)) == second_group.SERVERS
        models = eventually(
            lambda: [m for m in namespace.api.get("TritonModel", "echo")["status"]["models"] if m["pods"] == "3/3"], 60
        )
        assert [(m["name"], m["state"]) for m in models] == [("echo", "READY")]
        # Channels of gRPC stay open, so it takes some seconds until one leads to a new server.
        eventually(lambda: traffic.reaches("v2"), 120, traffic.log)
        annotate(None)
        eventually(lambda: serves(1), 120, lambda: namespace.conditions_text("echo"))
    assert traffic.failures() == []
    for protocol, counts in traffic.result.items():
        assert set(counts["versions"]) == {"v1", "v2"}, f"{protocol} got answers from {counts['versions']}"
    assert in_group(namespace, "") == first
