"""A changed model image on running servers, with rollout.strategy InPlace."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from support.api import Object, eventually
from support.cluster import Cluster, Namespace

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

Loader = Callable[..., AbstractContextManager[Any]]
IN_PLACE = {
    "rollout": {"strategy": "InPlace", "drainSeconds": 5},
    "entrypoint": "echo",
    "server": {
        "modelControl": "explicit",
        "loadModels": ["echo"],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    },
}


def test_model_image_changes_on_running_servers_without_a_failed_request(
    cluster: Cluster, namespace: Namespace, load: Loader
) -> None:
    first, second, broken = (cluster.image(change=change) for change in ("v1", "v2", "bracket"))
    namespace.deploy("echo", first, replicas=2, **IN_PLACE)
    before = _lives(namespace)

    with load("echo") as during:
        _set(namespace, second)
        # The next leader continues.
        cluster.kubectl("-n", "triton-operator", "delete", "pod", cluster.leader(), "--grace-period=0", "--force")
        found = namespace.wait_until_complete("echo")
        assert found["status"]["image"]["change"] == "InPlace"
        assert found["status"]["image"]["digest"] == second.partition("@")[2]
        assert _lives(namespace) == before
        assert {_image(pod["spec"]) for pod in namespace.pods("echo")} == {second}
        deployment = namespace.api.get("Deployment", "echo")
        assert not deployment["spec"].get("paused")
        assert _image(deployment["spec"]["template"]["spec"]) == second
        assert len(namespace.api.list("ReplicaSet")) == 1

        namespace.api.patch("TritonModel", "echo", {"spec": {"replicas": 3}})
        namespace.wait_until_complete("echo")
        assert {_image(pod["spec"]) for pod in namespace.pods("echo")} == {second}, "a later server begins with it"
        assert {name: _lives(namespace)[name] for name in before} == before

        _set(namespace, broken)
        words = namespace.wait_for_condition("echo", "Progressing", "False", "RepositoryInvalid")
        assert "echo/config.pbtxt:" in words, words
        change = namespace.api.get("TritonModel", "echo")["status"]["image"]["change"]
        assert change.startswith("RollingUpdate: "), change
        assert "echo/config.pbtxt:" in change, change
        assert {name: _lives(namespace)[name] for name in before} == before, "the old servers go on"
    assert during.failures() == []
    assert set(during.result["http"]["versions"]) == set(during.result["grpc"]["versions"]) == {"v1", "v2"}


def test_a_model_that_ends_the_server_leaves_the_old_files(cluster: Cluster, namespace: Namespace) -> None:
    namespace.deploy("echo", cluster.image(change="v1"), **IN_PLACE)
    [server] = _lives(namespace)
    _set(namespace, cluster.image(change="kills"))

    def restarted() -> bool:
        found = namespace.api.get("Pod", server)
        ready = next(c["status"] for c in found["status"]["conditions"] if c["type"] == "Ready")
        return ready == "True" and found["status"]["containerStatuses"][0]["restartCount"] > 0

    eventually(restarted, 120, lambda: namespace.kubectl("get", "pods", "-o", "wide"))
    change = eventually(
        lambda: str(namespace.api.get("TritonModel", "echo")["status"]["image"].get("change", "")).startswith("Roll")
        and namespace.api.get("TritonModel", "echo")["status"]["image"]["change"], 30, "the change becomes a rollout",
    )  # fmt: skip
    assert "the change was killed" in change, change
    files = namespace.kubectl("exec", server, "-c", "triton", "--", "ls", "/models/current/echo/1")
    assert "variant.txt" in files, files
    assert _image(namespace.api.get("Pod", server)["spec"]) == cluster.image(change="v1")


def _set(namespace: Namespace, image: str) -> None:
    namespace.api.patch("TritonModel", "echo", {"spec": {"modelImage": {"reference": image}}})


def _image(spec: Object) -> str:
    return str(next(c["image"] for c in spec["initContainers"] if c["name"] == "fetch"))


def _lives(namespace: Namespace) -> dict[str, int]:
    """Returns the restarts of each server by pod."""
    return {
        p["metadata"]["name"]: sum(s["restartCount"] for s in p["status"]["containerStatuses"])
        for p in namespace.pods("echo")
    }
