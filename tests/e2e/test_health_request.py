"""A server that stops answering spec.healthRequest gets no more requests, and is replaced if another one answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from support.api import Object, condition, eventually
from support.cluster import Cluster, Namespace
from support.load import load
from triton_operator.api import names

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
    left = {pod["metadata"]["name"] for pod in namespace.pods(fault) if "deletionTimestamp" not in pod["metadata"]}
    assert other in left
    assert victim not in left
    eventually(lambda: "HealthRequestFailed" in namespace.kubectl("events", f"--for=tritonmodel/{fault}"), 60)
    with load(namespace, fault, 20) as traffic:
        namespace.wait_until_complete(fault)
    assert traffic.failures() == []


def test_a_server_without_a_node_keeps_no_other_from_being_replaced(cluster: Cluster, namespace: Namespace) -> None:
    """The node has room for one server. Nobody gets an answer, so it is replaced although no other server answers."""
    term = {
        "labelSelector": {"matchLabels": names.selector("alone")},
        "topologyKey": "kubernetes.io/hostname",
    }
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    model = namespace.model("alone", cluster.image(change="breaks"), **SPEC, podTemplate={"spec": {"affinity": apart}})
    namespace.api.apply(model)
    namespace.wait_for_condition("alone", "Progressing", "False", "Unschedulable")
    namespace.wait_for_condition("alone", "Ready", "True", "EntrypointAnswers")
    (victim,) = (
        p["metadata"]["name"] for p in namespace.pods("alone") if condition(p, "Ready").get("status") == "True"
    )
    switch(namespace, victim, "touch", "broken")
    words = namespace.wait_for_condition("alone", "Ready", "False", "StoppedAnswering")
    repair = eventually(
        lambda: status(namespace, "alone").get("lastRepair"), 240, lambda: namespace.conditions_text("alone")
    )
    assert repair["server"] == victim
    assert f"{victim} is evicted at" in words or f"{victim} isn't evicted" in words, words
    namespace.wait_for_condition("alone", "Ready", "True", "EntrypointAnswers")


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
    assert "isn't evicted, because no server answers" in ready["message"]
    assert not status(namespace, "all").get("evictions")
    switch(namespace, first, "rm", "broken")
    repair = eventually(
        lambda: status(namespace, "all").get("lastRepair"), 240, lambda: namespace.conditions_text("all")
    )
    assert repair["server"] == second
    namespace.wait_until_complete("all")
