"""Leader election of the operator's replicas: a standby takes over, however the leader ends."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import pytest

from support.api import eventually
from support.cluster import NAMESPACE, Cluster, Namespace

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

Loader = Callable[..., AbstractContextManager[Any]]
LEASE_SECONDS = 15
OPERATOR = "app.kubernetes.io/name=triton-operator"


@pytest.fixture(autouse=True)
def two_replicas(cluster: Cluster) -> Iterator[None]:
    """Each test starts and ends with two ready replicas and a leader."""
    _wait_for_replicas_and_leader(cluster)
    yield
    _wait_for_replicas_and_leader(cluster)


def _wait_for_replicas_and_leader(cluster: Cluster) -> None:
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/triton-operator", "--timeout=90s")
    eventually(lambda: cluster.leader() in _pods(cluster), 60, "a leader")


def _pods(cluster: Cluster) -> set[str]:
    found = cluster.api.list("Pod", OPERATOR, NAMESPACE)
    return {p["metadata"]["name"] for p in found if "deletionTimestamp" not in p["metadata"]}


def _seconds_until_deployed(namespace: Namespace, name: str, image: str, seconds: float) -> float:
    """Applies a TritonModel and returns the seconds until an operator creates its Deployment."""
    start = time.monotonic()
    namespace.api.apply(namespace.model(name, image))
    eventually(lambda: namespace.api.find("Deployment", name), seconds, f"the Deployment of {name}")
    return time.monotonic() - start


def test_a_deleted_leader_releases_the_lease(cluster: Cluster, namespace: Namespace) -> None:
    def lease() -> dict[str, Any]:
        return dict(cluster.api.get("Lease", "triton-operator", NAMESPACE)["spec"])

    # Read both before the deletion: on a busy machine the next leader may take over before kubectl returns.
    old, renewed = cluster.leader(), lease()["renewTime"]

    def taken_over() -> str:
        nonlocal renewed
        spec = lease()
        holder = spec.get("holderIdentity", "")
        if holder and not holder.startswith(old):
            return str(spec["acquireTime"])
        renewed = spec["renewTime"]
        return ""

    cluster.kubectl("-n", NAMESPACE, "delete", "pod", old, "--wait=false")
    # The time since the last renewal is much shorter than the Lease's duration, however long running reconciles take.
    acquired = eventually(taken_over, 60, "another leader", every=0.2)
    gap = datetime.fromisoformat(acquired) - datetime.fromisoformat(renewed)
    assert gap.total_seconds() < LEASE_SECONDS - 5
    _seconds_until_deployed(namespace, "after", cluster.image(), 20)


def test_a_standby_takes_over_when_the_lease_of_a_lost_pod_expires(
    cluster: Cluster, namespace: Namespace, load: Loader
) -> None:
    namespace.deploy("echo", cluster.image())
    old = cluster.leader()
    with load("echo", 10) as during:
        _kill(cluster, old)
        cluster.kubectl("-n", NAMESPACE, "delete", "pod", old, "--force", "--grace-period=0", "--wait=false")
        # The next leader corrects drift that occurs while there is no leader.
        namespace.kubectl("set", "image", "deployment/echo", "triton=busybox:1.37")
        _seconds_until_deployed(namespace, "after", cluster.image(), LEASE_SECONDS + 10)
        assert cluster.leader() not in ("", old)
        eventually(lambda: "busybox:" not in str(namespace.api.get("Deployment", "echo")["spec"]), 10, "no drift")
        namespace.wait_until_complete("after")
    assert during.failures() == []


def test_a_killed_leader_restarts_as_a_candidate(cluster: Cluster, namespace: Namespace) -> None:
    pods, old = _pods(cluster), cluster.leader()
    before = _restarts(cluster, old)
    _kill(cluster, old)
    _seconds_until_deployed(namespace, "after", cluster.image(), LEASE_SECONDS + 10)
    eventually(lambda: _restarts(cluster, old) > before, 30, "the container to be restarted")
    assert _pods(cluster) == pods


def test_servers_work_without_an_operator(cluster: Cluster, namespace: Namespace, load: Loader) -> None:
    namespace.deploy("echo", cluster.image())
    with load("echo", 10) as during:
        cluster.kubectl("-n", NAMESPACE, "scale", "deployment/triton-operator", "--replicas=0")
        try:
            # Wait for terminating pods too: they keep working until they end.
            eventually(lambda: not cluster.api.list("Pod", OPERATOR, NAMESPACE), 60, "no operator")
            # The Deployment replaces a deleted server.
            (pod,) = namespace.pods("echo")
            namespace.kubectl("scale", "deployment/echo", "--replicas=2")
            eventually(lambda: namespace.api.get("Deployment", "echo")["status"].get("readyReplicas") == 2, 60)
            namespace.kubectl("delete", "pod", pod["metadata"]["name"], "--timeout=60s")
            # Deletion works without an operator: there is no finalizer.
            namespace.api.apply(namespace.model("untouched", cluster.image()))
            namespace.kubectl("delete", "tritonmodel", "untouched", "--timeout=60s")
        finally:
            cluster.kubectl("-n", NAMESPACE, "scale", "deployment/triton-operator", "--replicas=2")
    assert during.failures() == []


def _kill(cluster: Cluster, pod: str) -> None:
    """Kills the pod's process with SIGKILL from the node."""
    find = f"grep -lz '^POD_NAME={pod}$' /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3"
    script = f'pids=$({find}); [ -n "$pids" ] && kill -9 $pids && echo $pids'
    done = subprocess.run(
        ["docker", "exec", cluster.node, "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip(), f"no process of {pod} to kill: {done.stderr}"


def _restarts(cluster: Cluster, pod: str) -> int:
    found = cluster.api.find("Pod", pod, NAMESPACE) or {}
    return sum(s["restartCount"] for s in found.get("status", {}).get("containerStatuses", []))
