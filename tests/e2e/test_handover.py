"""Leader election of the operator's replicas: a standby takes over, however the leader ends."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import pytest

from support import evidence
from support.api import eventually, states
from support.cluster import NAMESPACE, OPERATOR, Cluster, Namespace

pytestmark = [pytest.mark.e2e, pytest.mark.operation]

Loader = Callable[..., AbstractContextManager[Any]]
LEASE_SECONDS = 15


@pytest.fixture(autouse=True)
def two_replicas(cluster: Cluster) -> Iterator[None]:
    """Each test starts and ends with two ready replicas and a leader."""
    cluster.wait_for_operator()
    yield
    with evidence.collected():
        cluster.wait_for_operator()


def _pods(cluster: Cluster) -> set[str]:
    pods = cluster.api.list("Pod", OPERATOR, NAMESPACE)
    return {p["metadata"]["name"] for p in pods if "deletionTimestamp" not in p["metadata"]}


def _wait_until_deployed(namespace: Namespace, name: str, image: str) -> None:
    """Applies a TritonModel and waits until an operator creates its Deployment."""
    namespace.api.apply(namespace.model(name, image))
    eventually(lambda: namespace.api.find("Deployment", name), 60, f"the Deployment of {name}")


def test_a_deleted_leader_releases_the_lease(cluster: Cluster, namespace: Namespace) -> None:
    operators = cluster.api.in_namespace(NAMESPACE)
    old_lease = operators.get("Lease", "triton-operator")
    holder = old_lease["spec"]["holderIdentity"]
    cluster.kubectl("-n", NAMESPACE, "delete", "pod", holder.partition("_")[0], "--wait=false")
    eventually(lambda: cluster.leader() not in ("", holder.partition("_")[0]), 60, "another leader")
    # The time since the last renewal is much shorter than the Lease's duration, however long running reconciles take.
    # All states of the Lease, because a busy machine may show this test only some.
    leases = states(operators, "Lease", "triton-operator", old_lease["metadata"]["resourceVersion"])
    specs = [old_lease["spec"], *(lease["spec"] for lease in leases)]
    index = next(k for k, spec in enumerate(specs) if spec.get("holderIdentity") not in ("", None, holder))
    gap = datetime.fromisoformat(specs[index]["acquireTime"]) - datetime.fromisoformat(specs[index - 1]["renewTime"])
    assert gap.total_seconds() < LEASE_SECONDS - 5, specs
    _wait_until_deployed(namespace, "after", cluster.image())


def test_a_standby_takes_over_when_the_lease_of_a_lost_pod_expires(
    cluster: Cluster, namespace: Namespace, load: Loader
) -> None:
    namespace.deploy("echo", cluster.image())
    leader = cluster.leader()
    with load("echo", 10) as traffic:
        _kill(cluster, leader)
        cluster.kubectl("-n", NAMESPACE, "delete", "pod", leader, "--force", "--grace-period=0", "--wait=false")
        # The next leader corrects drift that occurs while there is no leader.
        namespace.kubectl("set", "image", "deployment/echo", "triton=busybox:1.37")
        _wait_until_deployed(namespace, "after", cluster.image())
        assert cluster.leader() not in ("", leader)
        eventually(lambda: "busybox:" not in str(namespace.api.get("Deployment", "echo")["spec"]), 60, "no drift")
        namespace.wait_until_complete("after")
    assert traffic.failures() == []


def test_a_killed_leader_restarts_as_a_candidate(cluster: Cluster, namespace: Namespace) -> None:
    pods, leader = _pods(cluster), cluster.leader()
    restarts = _restarts(cluster, leader)
    _kill(cluster, leader)
    _wait_until_deployed(namespace, "after", cluster.image())
    eventually(lambda: _restarts(cluster, leader) > restarts, 60, "the container to be restarted")
    assert _pods(cluster) == pods


def test_servers_work_without_an_operator(cluster: Cluster, namespace: Namespace, load: Loader) -> None:
    namespace.deploy("echo", cluster.image())
    with load("echo", 10) as traffic:
        cluster.kubectl("-n", NAMESPACE, "scale", "deployment/triton-operator", "--replicas=0")
        try:
            # Wait for terminating pods too: they keep working until they end.
            cluster.wait_for_operator(0)
            # The Deployment replaces a deleted server.
            (pod,) = namespace.pods("echo")
            namespace.kubectl("scale", "deployment/echo", "--replicas=2")
            eventually(lambda: namespace.api.get("Deployment", "echo")["status"].get("readyReplicas") == 2, 60)
            namespace.kubectl("delete", "pod", pod["metadata"]["name"], "--timeout=120s")
            # Deletion works without an operator: there is no finalizer.
            namespace.api.apply(namespace.model("untouched", cluster.image()))
            namespace.kubectl("delete", "tritonmodel", "untouched", "--timeout=120s")
        finally:
            cluster.kubectl("-n", NAMESPACE, "scale", "deployment/triton-operator", "--replicas=2")
    assert traffic.failures() == []


def _kill(cluster: Cluster, pod: str) -> None:
    """Kills the pod's process with SIGKILL from the node."""
    find = f"grep -lz '^POD_NAME={pod}$' /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3"
    script = f'pids=$({find}); [ -n "$pids" ] && kill -9 $pids && echo $pids'
    process = subprocess.run(
        ["docker", "exec", cluster.node, "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert process.stdout.strip(), f"no process of {pod} to kill: {process.stderr}"


def _restarts(cluster: Cluster, pod: str) -> int:
    obj = cluster.api.find("Pod", pod, NAMESPACE) or {}
    return sum(s["restartCount"] for s in obj.get("status", {}).get("containerStatuses", []))
