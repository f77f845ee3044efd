"""The operator corrects drift and recreates deleted children. Deleting a TritonModel deletes all its children."""

from __future__ import annotations

import re
from typing import Any

import pytest

from support.api import condition, eventually, steady
from support.cluster import ROOT, Cluster, Namespace
from support.load import client, load
from triton_operator.api import names

pytestmark = pytest.mark.e2e

CLIENT = ROOT / "tests/e2e/client"
CHILDREN = ("Deployment", "Service", "ServiceAccount", "PodDisruptionBudget", "Pod", "ReplicaSet", "EndpointSlice")


@pytest.fixture(scope="module")
def served(cluster: Cluster, shared_namespace: Namespace) -> Namespace:
    shared_namespace.deploy("echo", cluster.image(), replicas=2)
    return shared_namespace


BUSYBOX = "/.triton-operator/tools/busybox"
KILL = """for path in /proc/[0-9]*; do
  IFS= read -r line <$path/stat 2>/dev/null || continue
  case $line in *"(triton_python_b)"*) ;; *) continue ;; esac
  set -- ${line##*)}
  until IFS=. read -r now rest </proc/uptime && [ $((now - ${20} / 100)) -ge 10 ]; do
    /.triton-operator/tools/busybox sleep 1
  done
  kill -9 ${path#/proc/}
done
true"""
"""Kills the processes of Python models when they are ten seconds old, so that the watch has seen them."""
RECREATED = [
    ("Deployment", "echo"), ("Service", "echo"), ("ServiceAccount", names.account("echo")),
    ("PodDisruptionBudget", "echo"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), RECREATED)
def test_recreates_a_deleted_child_within_seconds(served: Namespace, kind: str, name: str) -> None:
    old_child = served.api.get(kind, name)
    served.kubectl("delete", kind.lower(), name, "--wait=false", "--cascade=orphan")
    new_child = eventually(
        lambda: (obj := served.api.find(kind, name)) and obj["metadata"]["uid"] != old_child["metadata"]["uid"] and obj,
        60,
        f"the {kind} again",
    )
    assert new_child["metadata"]["ownerReferences"] == old_child["metadata"]["ownerReferences"]
    served.wait_until_complete("echo")


def test_corrects_an_edited_child_within_seconds(served: Namespace) -> None:
    image = served.api.get("Deployment", "echo")["spec"]["template"]["spec"]["containers"][0]["image"]
    served.kubectl("set", "image", "deployment/echo", "triton=busybox:1.37")
    selector = served.api.get("Service", "echo")["spec"]["selector"]
    served.api.patch("Service", "echo", {"spec": {"selector": {"tritonoperator.io/model": "other"}}})

    def container() -> str:
        return str(served.api.get("Deployment", "echo")["spec"]["template"]["spec"]["containers"][0]["image"])

    eventually(lambda: container() == image, 60, "the server's image again")
    eventually(lambda: served.api.get("Service", "echo")["spec"]["selector"] == selector, 60)
    served.wait_until_complete("echo")


def test_removes_an_added_selector_that_cuts_off_clients(served: Namespace) -> None:
    selector = served.api.get("Service", "echo")["spec"]["selector"]
    served.api.patch("Service", "echo", {"spec": {"selector": {"app": "other"}}})
    try:
        eventually(lambda: served.api.get("Service", "echo")["spec"]["selector"] == selector, 60)
    finally:
        served.api.patch("Service", "echo", {"spec": {"selector": {"app": None}}})


def test_keeps_annotations_of_others(served: Namespace) -> None:
    served.kubectl("annotate", "deployment", "echo", "example.com/note=mine")
    served.kubectl("set", "image", "deployment/echo", "triton=busybox:1.37")
    served.wait_until_complete("echo")
    deployment = served.api.get("Deployment", "echo")
    assert deployment["metadata"]["annotations"]["example.com/note"] == "mine"


def test_writes_nothing_when_nothing_changes(served: Namespace) -> None:
    served.wait_until_complete("echo")
    places = [("TritonModel", "echo"), *RECREATED]

    def versions() -> dict[str, str]:
        return {kind: served.api.get(kind, name)["metadata"]["resourceVersion"] for kind, name in places}

    # Kubernetes' controllers may still write at first.
    old_versions = steady(versions, 8, 120, "no write for 8 s")
    # The operator looks at these objects all the time: it corrects a change, and only that.
    # A label has no effect on the servers, so the status has no reason to change.
    child = served.api.patch("Service", "echo", {"metadata": {"labels": {"app.kubernetes.io/name": "other"}}})
    eventually(lambda: versions()["Service"] not in (old_versions["Service"], child["metadata"]["resourceVersion"]), 60)
    new_versions = steady(versions, 2, 120, "no write for 2 s")
    assert {kind for kind in old_versions if new_versions[kind] != old_versions[kind]} == {"Service"}


def test_a_server_with_a_dead_backend_process_restarts_and_answers(cluster: Cluster, namespace: Namespace) -> None:
    """Triton itself stays ready, and every request to the model would fail forever."""
    namespace.deploy("echo", cluster.image(), replicas=2, rollout={"drainSeconds": 1, "exitSeconds": 3})
    victim, survivor = sorted(pod["metadata"]["name"] for pod in namespace.pods("echo"))

    def repair() -> Any:
        return namespace.api.get("TritonModel", "echo")["status"].get("lastRepair")

    def restarts() -> dict[str, int]:
        return {
            p["metadata"]["name"]: p["status"]["containerStatuses"][0]["restartCount"] for p in namespace.pods("echo")
        }

    namespace.kubectl("exec", victim, "-c", "triton", "--", BUSYBOX, "sh", "-c", KILL)
    report = eventually(repair, 120, lambda: namespace.conditions_text("echo"))
    assert (report["reason"], report["server"]) == ("BackendDied", victim)
    assert "echo/1/model.py died" in report["message"]
    namespace.wait_until_complete("echo")
    assert restarts() == {victim: 1, survivor: 0}
    eventually(lambda: "BackendDied" in namespace.kubectl("events", "--for=tritonmodel/echo"), 60)
    with load(namespace, "echo", 20) as traffic:
        namespace.wait_until_complete("echo")
    assert traffic.failures() == []


def test_a_request_that_ends_each_server_restarts_them_ever_more_slowly(cluster: Cluster, namespace: Namespace) -> None:
    """A client alone can't have servers replaced, and the status counts."""
    name = "poison"
    namespace.deploy(name, cluster.image(change="breaks"), replicas=2, rollout={"drainSeconds": 1, "exitSeconds": 1})
    servers = {pod["metadata"]["uid"] for pod in namespace.pods(name)}

    def containers() -> list[Any]:
        return [pod["status"]["containerStatuses"][0] for pod in namespace.pods(name)]

    def status() -> Any:
        return namespace.api.get("TritonModel", name)["status"]

    def ready() -> tuple[str, str]:
        entry = condition(namespace.api.get("TritonModel", name), "Ready")
        return entry["status"], entry["reason"]

    def pauses() -> bool:
        waits = [c["state"].get("waiting", {}) for c in containers() if c["restartCount"] > 1]
        return any("back-off 20s" in w.get("message", "") for w in waits)

    with client(namespace, "client", (CLIENT / "poison.py",), ["python", "/client/poison.py", name]) as result:
        eventually(lambda: all(c["restartCount"] > 1 for c in containers()), 400, containers, 1)
        eventually(pauses, 300, containers, 0.5)
        words = r"echo/1/model.py died, .* it has restarted [2-9] times in this pod"
        eventually(lambda: re.search(words, status()["lastRepair"]["message"]), 60, status)
        eventually(lambda: ready() == ("False", "BackendDied"), 120, lambda: namespace.conditions_text(name))
    assert result["requests"] > 4
    namespace.wait_until_complete(name)
    assert {pod["metadata"]["uid"] for pod in namespace.pods(name)} == servers
    assert status()["evictions"] == []


def test_ready_names_a_server_that_answers_every_request_with_an_error(cluster: Cluster, namespace: Namespace) -> None:
    """Triton itself stays ready, as after a CUDA error. Prometheus' alert says which server it is."""
    namespace.deploy(
        "breaks", cluster.image(change="breaks"), replicas=2, rollout={"drainSeconds": 1, "exitSeconds": 3}
    )
    victim, other = sorted(pod["metadata"]["name"] for pod in namespace.pods("breaks"))

    def ready(reason: str) -> str:
        ready_condition = condition(namespace.api.get("TritonModel", "breaks"), "Ready")
        assert ready_condition["status"] == "True"
        return str(ready_condition["message"]) if ready_condition["reason"] == reason else ""

    with load(namespace, "breaks", 20) as during:
        namespace.kubectl("exec", victim, "-c", "triton", "--", BUSYBOX, "touch", "/dev/shm/broken")
        # Two minutes without a success, the alert's minute, and the evaluations of a minute.
        message = eventually(lambda: ready("ServerFails"), 480, lambda: namespace.conditions_text("breaks"))
        assert (
            f"on the server {victim} every request to the model echo version 1 fails; other servers answer" in message
        )
        assert other not in message
        eventually(lambda: "ServerFails" in namespace.kubectl("events", "--for=tritonmodel/breaks"), 60)
        namespace.kubectl("delete", "pod", victim, "--wait=false")
        namespace.wait_until_complete("breaks")
        eventually(lambda: ready("EntrypointAnswers"), 120, lambda: namespace.conditions_text("breaks"))
    assert any("illegal memory access" in failure or "500" in failure for failure in during.failures())


def test_a_recreated_tritonmodel_gets_servers_while_the_old_ones_drain(cluster: Cluster, namespace: Namespace) -> None:
    spec = {"rollout": {"drainSeconds": 90, "exitSeconds": 5}}
    namespace.deploy("again", cluster.image(), **spec)
    (pod,) = namespace.pods("again")
    namespace.kubectl("delete", "tritonmodel", "again")
    uid = namespace.api.apply(namespace.model("again", cluster.image(), **spec))["metadata"]["uid"]

    def is_recreated() -> bool:
        deployment = namespace.api.find("Deployment", "again")
        return deployment is not None and deployment["metadata"]["ownerReferences"][0]["uid"] == uid

    def drains() -> bool:
        return "deletionTimestamp" in namespace.api.get("Pod", pod["metadata"]["name"])["metadata"]

    eventually(is_recreated, 60, lambda: namespace.conditions_text("again"))
    # The garbage collector deletes the pods after the Deployment.
    eventually(drains, 60)
    namespace.wait_until_complete("again")


def test_deleting_a_tritonmodel_deletes_all_children(cluster: Cluster, namespace: Namespace) -> None:
    namespace.deploy("gone", cluster.image(), replicas=2, rollout={"drainSeconds": 1, "exitSeconds": 1})
    namespace.kubectl("delete", "tritonmodel", "gone", "--timeout=120s")

    def left() -> list[str]:
        return [
            f"{kind}/{o['metadata']['name']}"
            for kind in CHILDREN
            for o in namespace.api.list(kind)
            if o["metadata"]["name"].startswith(("gone", names.account("gone")))
        ]

    eventually(lambda: not left(), 60, lambda: f"leftovers: {left()}")
