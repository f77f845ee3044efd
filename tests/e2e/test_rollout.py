"""Changes while clients are calling: not one request may fail."""

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
"""Less than half of the drain, which is 12 s long here."""


def test_a_new_image_reaches_every_server_without_a_failed_request(
    cluster: Cluster, namespace: Namespace, load: Loader
) -> None:
    namespace.deploy("echo", cluster.image(change="v1"), replicas=2)
    with load("echo") as during:
        new = cluster.image(change="v2")
        status = namespace.deploy("echo", new, replicas=2)["status"]
        assert status["image"]["digest"] == new.partition("@")[2]
        _drained(namespace, 2)
    assert during.failures() == []
    for protocol, told in during.result.items():
        assert set(told["versions"]) == {"v1", "v2"}, f"{protocol} saw {told['versions']}"
        assert sum(told["versions"].values()) > 50


def test_an_image_that_is_not_there_leaves_the_old_servers_at_work(
    cluster: Cluster, namespace: Namespace, load: Loader
) -> None:
    namespace.deploy("echo", cluster.image(change="v1"))
    with load("echo") as during:
        missing = cluster.image().partition("@")[0] + ":not-there"
        namespace.api.apply(namespace.model("echo", missing))
        message = namespace.says("echo", "Progressing", "False", "ImagePullFailed")
        assert missing in message
        assert "not found" in message
        now = namespace.api.get("TritonModel", "echo")
        assert condition(now, "Ready")["status"] == "True"
        # Taken back, all is well again, without a new server.
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
def test_a_broken_repository_leaves_the_old_servers_at_work_and_is_told_in_words(
    cluster: Cluster, namespace: Namespace, load: Loader, change: str, reason: str, words: list[str]
) -> None:
    namespace.deploy("echo", cluster.image(change="v1"))
    with load("echo") as during:
        namespace.api.apply(namespace.model("echo", cluster.image(change=change)))
        message = namespace.says("echo", "Progressing", "False", reason)
        assert all(word in message for word in words), message
        now = namespace.api.get("TritonModel", "echo")
        assert condition(now, "Ready")["status"] == "True"
        assert condition(now, "ModelsLoaded")["status"] == "False"
        # And the next good one gets through.
        namespace.deploy("echo", cluster.image(change="v2"))
        _drained(namespace, 1)
    assert during.failures() == []
    assert set(during.result["grpc"]["versions"]) == {"v1", "v2"}


def test_a_restart_by_hand_fails_no_request(cluster: Cluster, namespace: Namespace, load: Loader) -> None:
    namespace.deploy("echo", cluster.image(), replicas=2)
    first = {p["metadata"]["uid"] for p in namespace.pods("echo")}
    with load("echo") as during:
        namespace.kubectl("rollout", "restart", "deployment/echo")
        namespace.kubectl("rollout", "status", "deployment/echo", "--timeout=90s")
        _drained(namespace, 2)
        assert first.isdisjoint(p["metadata"]["uid"] for p in namespace.pods("echo"))
    assert during.failures() == []


@pytest.mark.alone
def test_a_node_that_hears_late_of_a_server_that_goes_loses_no_request(
    cluster: Cluster, namespace: Namespace, load: Loader
) -> None:
    namespace.deploy("echo", cluster.image())
    (old,) = namespace.pods("echo")
    with load("echo") as during:
        with _deaf(cluster):
            namespace.kubectl("rollout", "restart", "deployment/echo")
            eventually(lambda: "deletionTimestamp" in namespace.api.get("Pod", old["metadata"]["name"])["metadata"], 60)
            # The node sends every new connection to the old server, and only to it.
            time.sleep(LATE_SECONDS)
        _drained(namespace, 1)
    assert during.failures() == []


@contextmanager
def _deaf(cluster: Cluster) -> Iterator[None]:
    """Meanwhile the node's kube-proxy hears of nothing."""
    signal = ["docker", "exec", cluster.node, "pkill", "-x", "kube-proxy", "--signal"]
    subprocess.run([*signal, "STOP"], check=True)
    try:
        yield
    finally:
        subprocess.run([*signal, "CONT"], check=True)


def _drained(namespace: Namespace, servers: int) -> None:
    """Waits until the old servers have drained and are gone; the load lasts until then."""
    eventually(lambda: len(namespace.api.list("Pod", "app.kubernetes.io/instance=echo")) == servers, 60)


def _ready(pod: dict[str, Any]) -> bool:
    return condition(pod, "Ready").get("status") == "True"
