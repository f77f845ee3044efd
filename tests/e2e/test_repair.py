"""The operator corrects drift and recreates deleted children. Deleting a TritonModel deletes all its children."""

from __future__ import annotations

import time

import pytest

from support.api import eventually
from support.cluster import Cluster, Namespace
from triton_operator.api import names

pytestmark = pytest.mark.e2e

SECONDS = 10
CHILDREN = ("Deployment", "Service", "ServiceAccount", "PodDisruptionBudget", "Pod", "ReplicaSet", "EndpointSlice")


@pytest.fixture(scope="module")
def served(cluster: Cluster, shared_namespace: Namespace) -> Namespace:
    shared_namespace.deploy("echo", cluster.image(), replicas=2)
    return shared_namespace


RECREATED = [
    ("Deployment", "echo"), ("Service", "echo"), ("ServiceAccount", names.account("echo")),
    ("PodDisruptionBudget", "echo"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), RECREATED)
def test_recreates_a_deleted_child_within_seconds(served: Namespace, kind: str, name: str) -> None:
    before = served.api.get(kind, name)
    served.kubectl("delete", kind.lower(), name, "--wait=false", "--cascade=orphan")
    again = eventually(
        lambda: (now := served.api.find(kind, name)) and now["metadata"]["uid"] != before["metadata"]["uid"] and now,
        SECONDS,
        f"the {kind} again",
    )
    assert again["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]
    served.wait_until_complete("echo")


def test_corrects_an_edited_child_within_seconds(served: Namespace) -> None:
    image = served.api.get("Deployment", "echo")["spec"]["template"]["spec"]["containers"][0]["image"]
    served.kubectl("set", "image", "deployment/echo", "triton=busybox:1.37")
    selector = served.api.get("Service", "echo")["spec"]["selector"]
    served.api.patch("Service", "echo", {"spec": {"selector": {"tritonoperator.io/model": "other"}}})

    def container() -> str:
        return str(served.api.get("Deployment", "echo")["spec"]["template"]["spec"]["containers"][0]["image"])

    eventually(lambda: container() == image, SECONDS, "the server's image again")
    eventually(lambda: served.api.get("Service", "echo")["spec"]["selector"] == selector, SECONDS)
    served.wait_until_complete("echo")


def test_removes_an_added_selector_that_cuts_off_clients(served: Namespace) -> None:
    selector = served.api.get("Service", "echo")["spec"]["selector"]
    served.api.patch("Service", "echo", {"spec": {"selector": {"app": "other"}}})
    try:
        eventually(lambda: served.api.get("Service", "echo")["spec"]["selector"] == selector, SECONDS)
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

    def rests() -> bool:
        before = versions()
        time.sleep(8)
        return versions() == before

    # Kubernetes' controllers may still write at first.
    eventually(rests, 60, "no write for 8 s", every=0)


def test_a_recreated_tritonmodel_gets_servers_while_the_old_ones_drain(cluster: Cluster, namespace: Namespace) -> None:
    slow = {"rollout": {"drainSeconds": 40, "exitSeconds": 5}}
    namespace.deploy("again", cluster.image(), **slow)
    (old,) = namespace.pods("again")
    namespace.kubectl("delete", "tritonmodel", "again")
    uid = namespace.api.apply(namespace.model("again", cluster.image(), **slow))["metadata"]["uid"]

    def made() -> bool:
        found = namespace.api.find("Deployment", "again")
        return found is not None and found["metadata"]["ownerReferences"][0]["uid"] == uid

    eventually(made, SECONDS, lambda: namespace.conditions_text("again"))
    assert "deletionTimestamp" in namespace.api.get("Pod", old["metadata"]["name"])["metadata"]
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
