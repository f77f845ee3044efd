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
LATE_SECONDS = 5
"""Less than half of the drain time, which is 12 s in these tests."""


def test_a_new_image_rolls_out_without_a_failed_request(cluster: Cluster, namespace: Namespace, load: Loader) -> None:
    namespace.deploy("echo", cluster.image(change="v1"), replicas=2)
    with load("echo") as during:
        new = cluster.image(change="v2")
        status = namespace.deploy("echo", new, replicas=2)["status"]
        assert status["image"]["digest"] == new.partition("@")[2]
        _drained(namespace, 2)
    assert during.failures() == []
    for protocol, counts in during.result.items():
        assert set(counts["versions"]) == {"v1", "v2"}, f"{protocol} got answers from {counts['versions']}"
        assert sum(counts["versions"].values()) > 50


def test_a_missing_image_keeps_the_old_servers(cluster: Cluster, namespace: Namespace, load: Loader) -> None:
    namespace.deploy("echo", cluster.image(change="v1"))
    with load("echo") as during:
        missing = cluster.image().partition("@")[0] + ":not-there"
        namespace.api.apply(namespace.model("echo", missing))
        message = namespace.wait_for_condition("echo", "Progressing", "False", "ImagePullFailed")
        assert missing in message
        assert "not found" in message
        now = namespace.api.get("TritonModel", "echo")
        assert condition(now, "Ready")["status"] == "True"
        # Reverting the spec needs no new server.
        before = {p["metadata"]["uid"] for p in namespace.pods("echo") if _ready(p)}
        namespace.deploy("echo", cluster.image(change="v1"))
        assert {p["metadata"]["uid"] for p in namespace.pods("echo")} == before
    assert during.failures() == []
    assert set(during.result["http"]["versions"]) == {"v1"}


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
    with load("echo") as during:
        namespace.api.apply(namespace.model("echo", cluster.image(change=change)))
        message = namespace.wait_for_condition("echo", "Progressing", "False", reason)
        assert all(word in message for word in words), message
        now = namespace.api.get("TritonModel", "echo")
        assert condition(now, "Ready")["status"] == "True"
        assert condition(now, "ModelsLoaded")["status"] == "False"
        # The next valid image rolls out.
        namespace.deploy("echo", cluster.image(change="v2"))
        _drained(namespace, 1)
    assert during.failures() == []
    assert set(during.result["grpc"]["versions"]) == {"v1", "v2"}


def test_kubectl_rollout_restart_fails_no_request(cluster: Cluster, namespace: Namespace, load: Loader) -> None:
    namespace.deploy("echo", cluster.image(), replicas=2)
    first = {p["metadata"]["uid"] for p in namespace.pods("echo")}
    with load("echo") as during:
        namespace.kubectl("rollout", "restart", "deployment/echo")
        namespace.kubectl("rollout", "status", "deployment/echo", "--timeout=90s")
        _drained(namespace, 2)
        assert first.isdisjoint(p["metadata"]["uid"] for p in namespace.pods("echo"))
    assert during.failures() == []


@pytest.mark.alone
def test_fails_no_request_if_kube_proxy_learns_late_of_a_terminating_server(
    cluster: Cluster, namespace: Namespace, load: Loader
) -> None:
    namespace.deploy("echo", cluster.image())
    (old,) = namespace.pods("echo")
    with load("echo") as during:
        with _kube_proxy_stopped(cluster):
            namespace.kubectl("rollout", "restart", "deployment/echo")
            eventually(lambda: "deletionTimestamp" in namespace.api.get("Pod", old["metadata"]["name"])["metadata"], 60)
            # The node sends all new connections to the old server.
            time.sleep(LATE_SECONDS)
        _drained(namespace, 1)
    assert during.failures() == []


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
