"""A changed model image on running servers, with rollout.strategy InPlace."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from support import onnx_file
from support.api import Object, condition, eventually
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


def test_a_model_that_leaks_becomes_a_rollout(cluster: Cluster, namespace: Namespace, load: Loader) -> None:
    """Each load leaves 150 MiB behind. The limit has room for two changes, and a new server has 150 MiB again."""
    first, second, third = (cluster.image(change="leaks", variant=variant) for variant in ("v1", "v2", "v3"))
    resources = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}
    spec = {
        **IN_PLACE,
        "rollout": {"strategy": "InPlace", "drainSeconds": 12},
        "server": {**IN_PLACE["server"], "resources": resources},  # type: ignore[dict-item]
    }
    namespace.deploy("echo", first, replicas=2, **spec)
    before = _lives(namespace)

    with load("echo") as during:
        for image in (second, first):
            _set(namespace, image)
            assert namespace.wait_until_complete("echo")["status"]["image"]["change"] == "InPlace"
        assert _lives(namespace) == before

        _set(namespace, third)
        change = namespace.wait_until_complete("echo")["status"]["image"]["change"]
        words = (
            r"RollingUpdate: echo-\S+: both versions of a model may not fit: a second version may need \d+ MiB .*"
            r"the server uses (\d+) MiB of its limit of 1024 MiB"
        )
        used = re.match(words, change)
        assert used, change
        assert 3 * 150 < int(used[1]) < 1024, change
        after = _lives(namespace)
        assert not set(after) & set(before), "new servers"
        assert set(after.values()) == {0}
        assert {_image(pod["spec"]) for pod in namespace.pods("echo")} == {third}
        # The old servers end while requests arrive.
        eventually(lambda: not set(before) & _pods(namespace), 60, lambda: f"{set(before)} are gone")
    assert during.failures() == []
    assert set(during.result["http"]["versions"]) == set(during.result["grpc"]["versions"]) == {"v1", "v2", "v3"}


def test_a_broken_model_leaves_the_old_version_and_is_named(
    cluster: Cluster, namespace: Namespace, load: Loader, tmp_path: Path
) -> None:
    """The check in the pod finds the first two before anything changes, and Triton the others."""
    good = cluster.image(change="v1")
    broken = [
        (cluster.image(change="forgets"), "RepositoryInvalid", ("echo/2:", "no model.py")),
        (_onnx(cluster, tmp_path / "short", lambda file: file[:-9]), "RepositoryInvalid", ("echo/1/model.onnx",)),
        (_onnx(cluster, tmp_path / "damaged", _damaged), "ModelLoadFailed", ("echo", "/echo/1/model.onnx", "Rdshape")),
        (cluster.image(change="raises"), "ModelLoadFailed", ("echo", "the weights are from Tuesday")),
    ]
    namespace.deploy("echo", good, **IN_PLACE)
    before = _lives(namespace)
    with load("echo") as during:
        for image, reason, words in broken:
            _set(namespace, image)
            message = namespace.wait_for_condition("echo", "Progressing", "False", reason)
            found = namespace.api.get("TritonModel", "echo")
            change = found["status"]["image"]["change"]
            assert change.startswith("RollingUpdate: "), change
            assert all(word in text for word in words for text in (change, message)), (change, message)
            assert condition(found, "Ready")["status"] == "True"
            assert {name: _lives(namespace).get(name) for name in before} == before, "the old server goes on"
            _set(namespace, good)
            namespace.wait_until_complete("echo")
    assert _lives(namespace) == before
    assert during.failures() == []
    assert set(during.result["http"]["versions"]) == set(during.result["grpc"]["versions"]) == {"v1"}


def _onnx(cluster: Cluster, context: Path, change: Callable[[bytes], bytes]) -> str:
    """Returns an image whose model is an ONNX file that `change` has changed."""
    config = (
        'backend: "onnxruntime"\ninput [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]\n'
        'output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]\n'
    )
    file = onnx_file.reshaped(("INPUT", onnx_file.INT32, [1]), ("OUTPUT", onnx_file.INT32, [1]), [1])
    (context / "echo" / "1").mkdir(parents=True)
    (context / "echo" / "config.pbtxt").write_text(config)
    (context / "echo" / "1" / "model.onnx").write_bytes(change(file))
    (context / "Dockerfile").write_text("FROM scratch\nCOPY echo /models/echo\n")
    return cluster.image_of(f"onnx-{context.name}", context)


def _damaged(file: bytes) -> bytes:
    """Returns the file with one other bit, in the name of an operator, which the check doesn't read."""
    return file.replace(b"Reshape", b"Rdshape")


def _set(namespace: Namespace, image: str) -> None:
    namespace.api.patch("TritonModel", "echo", {"spec": {"modelImage": {"reference": image}}})


def _image(spec: Object) -> str:
    return str(next(c["image"] for c in spec["initContainers"] if c["name"] == "fetch"))


def _pods(namespace: Namespace) -> set[str]:
    """Returns the names of all pods, also of those that are being deleted."""
    return {pod["metadata"]["name"] for pod in namespace.api.list("Pod")}


def _lives(namespace: Namespace) -> dict[str, int]:
    """Returns the restarts of each server by pod."""
    return {
        p["metadata"]["name"]: sum(s["restartCount"] for s in p["status"]["containerStatuses"])
        for p in namespace.pods("echo")
    }
