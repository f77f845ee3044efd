"""A server that stops answering spec.healthRequest gets no more requests, and is replaced if another one answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from support.api import Object, condition, eventually
from support.cluster import Cluster, Namespace
from support.load import load

pytestmark = pytest.mark.e2e

BUSYBOX = "/.triton-operator/tools/busybox"
SPEC = {
    "replicas": 2,
    "rollout": {"drainSeconds": 1, "exitSeconds": 3},
    "healthRequest": {"file": "echo/health.json", "everySeconds": 5, "timeoutSeconds": 2},
}


def switch(namespace: Namespace, pod: str, program: str, file: str) -> None:
    """Runs `touch` or `rm` on a file that changes how the model of this server behaves."""
    namespace.kubectl("exec", pod, "-c", "triton", "--", BUSYBOX, program, f"/dev/shm/{file}")


def status(namespace: Namespace, name: str) -> Object:
    model: Object = namespace.api.get("TritonModel", name)["status"]
    return model


@pytest.mark.parametrize("fault", ["broken", "stuck"])
def test_replaces_a_server_that_stops_answering(cluster: Cluster, namespace: Namespace, fault: str) -> None:
    """Triton itself stays ready. There is no Prometheus in this story."""
    namespace.deploy(fault, cluster.image(change="breaks"), **SPEC)
    victim, other = sorted(pod["metadata"]["name"] for pod in namespace.pods(fault))
    switch(namespace, victim, "touch", fault)
    repair = eventually(
        lambda: status(namespace, fault).get("lastRepair"), 240, lambda: namespace.conditions_text(fault)
    )
    assert (repair["reason"], repair["server"]) == ("HealthRequestFailed", victim)
    assert len(status(namespace, fault)["evictions"]) == 1
    namespace.wait_until_complete(fault)
    names = {pod["metadata"]["name"] for pod in namespace.pods(fault) if "deletionTimestamp" not in pod["metadata"]}
    assert other in names
    assert victim not in names
    eventually(lambda: "HealthRequestFailed" in namespace.kubectl("events", f"--for=tritonmodel/{fault}"), 60)
    with load(namespace, fault, 20) as traffic:
        namespace.wait_until_complete(fault)
    assert traffic.failures() == []


def test_replaces_none_while_all_fail(cluster: Cluster, namespace: Namespace) -> None:
    """Then the model, or what it depends on, is to blame. When one answers again, the other one is replaced."""
    namespace.deploy("all", cluster.image(change="breaks"), **SPEC)
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in namespace.pods("all")}
    first, second = sorted(pods)
    for pod in pods:
        switch(namespace, pod, "touch", "broken")

    def stopped_for_a_minute() -> bool:
        conditions = [condition(namespace.api.get("Pod", pod), "Ready") for pod in pods]
        limit = datetime.now(UTC) - timedelta(minutes=1)
        return all(
            ready["status"] == "False" and datetime.fromisoformat(ready["lastTransitionTime"]) < limit
            for ready in conditions
        )

    eventually(stopped_for_a_minute, 240, lambda: namespace.conditions_text("all"))
    assert {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in namespace.pods("all")} == pods
    ready = condition({"status": status(namespace, "all")}, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "StoppedAnswering")
    assert not status(namespace, "all").get("evictions")
    switch(namespace, first, "rm", "broken")
    repair = eventually(
        lambda: status(namespace, "all").get("lastRepair"), 240, lambda: namespace.conditions_text("all")
    )
    assert repair["server"] == second
    namespace.wait_until_complete("all")
