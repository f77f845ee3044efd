"""Rollouts while clients send requests: no request may fail."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from support.api import condition, eventually
from support.cluster import Cluster, Namespace

pytestmark = pytest.mark.e2e

Loader = Callable[..., AbstractContextManager[Any]]
LATE_SECONDS, DRAIN_SECONDS = 5, 24
"""A busy machine takes some seconds more to stop kube-proxy and to continue it."""


@pytest.mark.path
def test_a_new_image_rolls_out_without_a_failed_request(cluster: Cluster, namespace: Namespace, load: Loader) -> None:
    namespace.deploy("echo", cluster.image(change="v1"), replicas=2)
    with load("echo") as traffic:
        image = cluster.image(change="v2")
        status = namespace.deploy("echo", image, replicas=2)["status"]
        assert status["image"]["digest"] == image.partition("@")[2]
        _drained(namespace, 2)
    assert traffic.failures() == []
    for protocol, counts in traffic.result.items():
        assert set(counts["versions"]) == {"v1", "v2"}, f"{protocol} got answers from {counts['versions']}"
        assert sum(counts["versions"].values()) > 50


def test_a_missing_image_keeps_the_old_servers(cluster: Cluster, namespace: Namespace, load: Loader) -> None:
    namespace.deploy("echo", cluster.image(change="v1"))
    with load("echo") as traffic:
        image = cluster.image().partition("@")[0] + ":not-there"
        namespace.api.apply(namespace.model("echo", image))
        message = namespace.wait_for_condition("echo", "Progressing", "False", "ImagePullFailed")
        assert image in message
        assert "not found" in message
        model = namespace.api.get("TritonModel", "echo")
        assert condition(model, "Ready")["status"] == "True"
        # Reverting the spec needs no new server.
        uids = {p["metadata"]["uid"] for p in namespace.pods("echo") if _ready(p)}
        namespace.deploy("echo", cluster.image(change="v1"))
        assert {p["metadata"]["uid"] for p in namespace.pods("echo")} == uids
    assert traffic.failures() == []
    assert set(traffic.result["http"]["versions"]) == {"v1"}


@pytest.mark.path
@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ("bracket", "RepositoryInvalid", ["echo/config.pbtxt:16"]),
        ("raises", "ModelLoadFailed", ["echo", "the weights are from Tuesday"]),
    ],
)
def test_a_broken_repository_keeps_the_old_servers_and_is_reported(
    cluster: Cluster, namespace: Namespace, load: Loader, change: str, reason: str, words: list[str]
) -> None:
    namespace.deploy("echo", cluster.image(change="v1"))
    with load("echo") as traffic:
        namespace.api.apply(namespace.model("echo", cluster.image(change=change)))
        message = namespace.wait_for_condition("echo", "Progressing", "False", reason)
        assert all(word in message for word in words), message
        model = namespace.api.get("TritonModel", "echo")
        assert condition(model, "Ready")["status"] == "True"
        assert condition(model, "ModelsLoaded")["status"] == "False"
        # The next valid image rolls out.
        namespace.deploy("echo", cluster.image(change="v2"))
        _drained(namespace, 1)
    assert traffic.failures() == []
    assert set(traffic.result["grpc"]["versions"]) == {"v1", "v2"}


def test_the_old_servers_entrypoint_holds_while_the_new_one_does_not_load(
    cluster: Cluster, namespace: Namespace, load: Loader
) -> None:
    """What alerts, thresholds and autoscalers count is what clients get answers from."""
    namespace.deploy("echo", cluster.image(change="v1"))
    with load("echo") as traffic:
        renamed = cluster.image(change="renamed")
        namespace.api.apply(namespace.model("echo", renamed, entrypoint="other"))
        message = namespace.wait_for_condition("echo", "Progressing", "False", "ModelLoadFailed")
        assert "the labels are from Wednesday" in message
        model = namespace.api.get("TritonModel", "echo")
        assert model["status"]["entrypoint"] == "echo"
        assert condition(model, "Ready")["message"] == "echo answers"
        model = namespace.deploy("echo", cluster.image(change="two"), entrypoint="other")
        assert model["status"]["entrypoint"] == "other"
        assert condition(model, "Ready")["message"] == "other answers"
    assert traffic.failures() == []


def test_kubectl_rollout_restart_fails_no_request(cluster: Cluster, namespace: Namespace, load: Loader) -> None:
    namespace.deploy("echo", cluster.image(), replicas=2)
    uids = {p["metadata"]["uid"] for p in namespace.pods("echo")}
    with load("echo") as traffic:
        namespace.kubectl("rollout", "restart", "deployment/echo")
        namespace.kubectl("rollout", "status", "deployment/echo", "--timeout=90s")
        _drained(namespace, 2)
        assert uids.isdisjoint(p["metadata"]["uid"] for p in namespace.pods("echo"))
    assert traffic.failures() == []


@pytest.mark.operation
def test_fails_no_request_if_kube_proxy_learns_late_of_a_terminating_server(
    cluster: Cluster, namespace: Namespace, load: Loader
) -> None:
    namespace.deploy("echo", cluster.image(), rollout={"drainSeconds": DRAIN_SECONDS})
    (pod,) = namespace.pods("echo")
    with load("echo") as traffic:
        with _kube_proxy_stopped(cluster):
            namespace.kubectl("rollout", "restart", "deployment/echo")
            eventually(lambda: "deletionTimestamp" in namespace.api.get("Pod", pod["metadata"]["name"])["metadata"], 60)
            # The node sends all new connections to the old server. For how long is the subject of this test.
            time.sleep(LATE_SECONDS)
        _drained(namespace, 1)
    assert traffic.failures() == []


@contextmanager
def _kube_proxy_stopped(cluster: Cluster) -> Iterator[None]:
    """Stops the node's kube-proxy with SIGSTOP while the context lasts."""
    signal = ["docker", "exec", cluster.node, "pkill", "-x", "kube-proxy", "--signal"]
    subprocess.run([*signal, "STOP"], check=True)
    try:
        yield
    finally:
        subprocess.run([*signal, "CONT"], check=True)


def _drained(namespace: Namespace, servers: int) -> None:
    """Waits until the old servers have drained and ended, while the load continues."""
    eventually(lambda: len(namespace.api.list("Pod", "tritonoperator.io/model=echo")) == servers, 60)


def _ready(pod: dict[str, Any]) -> bool:
    return condition(pod, "Ready").get("status") == "True"
