"""The operator's replicas: one goes, however it goes, and the other carries on."""

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
def whole_again(cluster: Cluster) -> Iterator[None]:
    """Each test begins and ends with two replicas that are ready, one of them leading."""
    _whole(cluster)
    yield
    _whole(cluster)


def _whole(cluster: Cluster) -> None:
    cluster.kubectl("-n", NAMESPACE, "rollout", "status", "deployment/triton-operator", "--timeout=90s")
    eventually(lambda: cluster.leader() in _pods(cluster), 60, "a leader")


def _pods(cluster: Cluster) -> set[str]:
    found = cluster.api.list("Pod", OPERATOR, NAMESPACE)
    return {p["metadata"]["name"] for p in found if "deletionTimestamp" not in p["metadata"]}


def _acts(namespace: Namespace, name: str, image: str, seconds: float) -> float:
    """Applies a TritonModel; how long until an operator has made its Deployment."""
    start = time.monotonic()
    namespace.api.apply(namespace.model(name, image))
    eventually(lambda: namespace.api.find("Deployment", name), seconds, f"somebody to act on {name}")
    return time.monotonic() - start


def test_a_leader_that_is_told_to_go_hands_over_at_once(cluster: Cluster, namespace: Namespace) -> None:
    def look() -> dict[str, Any]:
        return dict(cluster.api.get("Lease", "triton-operator", NAMESPACE)["spec"])

    # The next leader may be there before the first look: kubectl takes a while on a busy machine.
    old, renewed = cluster.leader(), look()["renewTime"]

    def taken_over() -> str:
        nonlocal renewed
        lease = look()
        holder = lease.get("holderIdentity", "")
        if holder and not holder.startswith(old):
            return str(lease["acquireTime"])
        renewed = lease["renewTime"]
        return ""

    cluster.kubectl("-n", NAMESPACE, "delete", "pod", old, "--wait=false")
    # However long the passes take that it had begun: far less than the lease lasts after its last word.
    acquired = eventually(taken_over, 60, "another leader", every=0.2)
    gap = datetime.fromisoformat(acquired) - datetime.fromisoformat(renewed)
    assert gap.total_seconds() < LEASE_SECONDS - 5
    _acts(namespace, "after", cluster.image(), 20)


def test_a_leader_whose_pod_vanishes_is_replaced_when_its_lease_has_run_out(
    cluster: Cluster, namespace: Namespace, load: Loader
) -> None:
    namespace.deploy("echo", cluster.image())
    old = cluster.leader()
    with load("echo", 10) as during:
        _kill(cluster, old)
        cluster.kubectl("-n", NAMESPACE, "delete", "pod", old, "--force", "--grace-period=0", "--wait=false")
        # Meanwhile someone changes a child, which nobody mends yet; the next leader does.
        namespace.kubectl("set", "image", "deployment/echo", "triton=busybox:1.37")
        _acts(namespace, "after", cluster.image(), LEASE_SECONDS + 10)
        assert cluster.leader() not in ("", old)
        eventually(lambda: "busybox:" not in str(namespace.api.get("Deployment", "echo")["spec"]), 10, "no drift")
        namespace.settled("after")
    assert during.failures() == []


def test_a_leader_that_is_killed_comes_back_as_a_candidate(cluster: Cluster, namespace: Namespace) -> None:
    pods, old = _pods(cluster), cluster.leader()
    before = _restarts(cluster, old)
    _kill(cluster, old)
    _acts(namespace, "after", cluster.image(), LEASE_SECONDS + 10)
    eventually(lambda: _restarts(cluster, old) > before, 30, "the container to be restarted")
    assert _pods(cluster) == pods


def test_servers_need_no_operator(cluster: Cluster, namespace: Namespace, load: Loader) -> None:
    namespace.deploy("echo", cluster.image())
    with load("echo", 10) as during:
        cluster.kubectl("-n", NAMESPACE, "scale", "deployment/triton-operator", "--replicas=0")
        try:
            # Also those that have been told to go: they go on until they hear of it.
            eventually(lambda: not cluster.api.list("Pod", OPERATOR, NAMESPACE), 60, "no operator")
            # A server that dies is replaced by its Deployment.
            (pod,) = namespace.pods("echo")
            namespace.kubectl("scale", "deployment/echo", "--replicas=2")
            eventually(lambda: namespace.api.get("Deployment", "echo")["status"].get("readyReplicas") == 2, 60)
            namespace.kubectl("delete", "pod", pod["metadata"]["name"], "--timeout=60s")
            # Without an operator, too, deletion is complete: nothing holds the resource back.
            namespace.api.apply(namespace.model("untouched", cluster.image()))
            namespace.kubectl("delete", "tritonmodel", "untouched", "--timeout=60s")
        finally:
            cluster.kubectl("-n", NAMESPACE, "scale", "deployment/triton-operator", "--replicas=2")
    assert during.failures() == []


def _kill(cluster: Cluster, pod: str) -> None:
    """kill -9, from the node: nothing in the pod hears of it."""
    find = f"grep -lz '^POD_NAME={pod}$' /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3"
    script = f'pids=$({find}); [ -n "$pids" ] && kill -9 $pids && echo $pids'
    done = subprocess.run(
        ["docker", "exec", cluster.node, "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip(), f"no process of {pod} to kill: {done.stderr}"


def _restarts(cluster: Cluster, pod: str) -> int:
    found = cluster.api.find("Pod", pod, NAMESPACE) or {}
    return sum(s["restartCount"] for s in found.get("status", {}).get("containerStatuses", []))
