"""A change of spec.server.loadModels on running servers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from support.api import condition, eventually
from support.cluster import Cluster, Namespace
from triton_operator.api import names
from triton_operator.render.delivery import BUSYBOX

pytestmark = [pytest.mark.e2e, pytest.mark.operation]

Loader = Callable[..., AbstractContextManager[Any]]


def test_load_models_change_on_running_servers_without_a_failed_request(
    cluster: Cluster, namespace: Namespace, load: Loader
) -> None:
    explicit = {"modelControl": "explicit", "loadModels": ["echo"]}
    namespace.deploy("echo", cluster.image(change="two"), replicas=2, server=explicit)
    lives = _lives(namespace)

    with load("echo") as traffic:
        _set(namespace, "echo", "other")
        # The next leader continues.
        cluster.kill_leader()
        namespace.wait_until_complete("echo")
        # The operator asks the servers one by one, perhaps after the rollout is complete.
        both = {"echo": "2/2", "other": "2/2"}
        eventually(lambda: _pods(namespace) == both, 180, lambda: str(_pods(namespace)))
        assert _listed(namespace) == ["echo", "other"]
        assert len(_sets(namespace)) == 1

        _set(namespace, "echo", "nothing")
        words = namespace.wait_for_condition("echo", "Progressing", "False", "ModelLoadFailed")
        assert "failed to load 'nothing'" in words, words
        assert _ready(namespace) == {"echo", "other"}, "nothing is unloaded"
        assert _listed(namespace) == ["echo", "other"], "so that a server can start"
        assert _lives(namespace) == lives

        _set(namespace, "echo")
        namespace.wait_until_complete("echo")
        eventually(lambda: _loaded(namespace) == {"echo"}, 90, lambda: str(_loaded(namespace)))
        assert _lives(namespace) == lives
    assert traffic.failures() == []

    namespace.api.patch("TritonModel", "echo", {"spec": {"replicas": 3}})
    namespace.wait_until_complete("echo")
    (new_pod,) = (name for name in _lives(namespace) if name not in lives)
    log = namespace.kubectl("logs", new_pod, "-c", "triton")
    assert "loading: echo" in log
    assert "loading: other" not in log
    assert {name: _lives(namespace)[name] for name in lives} == lives


def test_a_server_of_the_old_image_starts_again_with_its_own_models(
    cluster: Cluster, namespace: Namespace, load: Loader
) -> None:
    """The image and the list change together, and the new image can't be pulled."""
    explicit = {"modelControl": "explicit", "loadModels": ["echo"]}
    namespace.deploy("echo", cluster.image(change="v1"), replicas=2, server=explicit)
    with load("echo") as traffic:
        missing = cluster.image(change="two").partition("@")[0] + ":not-there"
        both = {**explicit, "loadModels": ["echo", "other"]}
        namespace.api.apply(namespace.model("echo", missing, replicas=2, server=both))
        namespace.wait_for_condition("echo", "Progressing", "False", "ImagePullFailed")
        assert condition(namespace.api.get("TritonModel", "echo"), "ModelsLoaded")["status"] == "True"
        gone = next(iter(_serving(namespace)))
        namespace.kubectl("delete", "pod", gone, "--wait=false")
        eventually(
            lambda: len(names := _serving(namespace)) == 2 and gone not in names,
            90,
            lambda: namespace.conditions_text("echo"),
        )
    assert traffic.failures() == []
    # One that restarts in its pod, too.
    (restarted, _) = _serving(namespace)
    namespace.kubectl("exec", restarted, "-c", "triton", "--", BUSYBOX, "kill", "1")
    eventually(lambda: _lives(namespace).get(restarted) == 1 and restarted in _serving(namespace), 90)
    eventually(lambda: _pods(namespace) == {"echo": "2/2"}, 90, lambda: str(_pods(namespace)))
    # A good image with the same list.
    namespace.deploy("echo", cluster.image(change="two"), replicas=2, server=both)
    eventually(lambda: _pods(namespace) == {"echo": "2/2", "other": "2/2"}, 90, lambda: str(_pods(namespace)))
    eventually(lambda: len(_lists(namespace)) == 1, 90, lambda: str(_lists(namespace)))


def _serving(namespace: Namespace) -> list[str]:
    """Returns the names of the ready pods."""
    ready = [p for p in namespace.pods("echo") if "deletionTimestamp" not in p["metadata"]]
    return sorted(p["metadata"]["name"] for p in ready if condition(p, "Ready").get("status") == "True")


def _lists(namespace: Namespace) -> dict[str, list[str]]:
    """Returns the models that servers load when they start, by pod template."""
    data = namespace.api.get("ConfigMap", names.account("echo"))["data"]
    return {key: text.split() for key, text in data.items() if not key.endswith(".others")}


def _set(namespace: Namespace, *models: str) -> None:
    namespace.api.patch("TritonModel", "echo", {"spec": {"server": {"loadModels": list(models)}}})


def _listed(namespace: Namespace) -> list[str]:
    """Returns the models that a server loads when it starts."""
    (models,) = _lists(namespace).values()
    return models


def _sets(namespace: Namespace) -> list[Any]:
    return namespace.api.list("ReplicaSet")


def _models(namespace: Namespace) -> list[Any]:
    return list(namespace.api.get("TritonModel", "echo")["status"]["models"])


def _pods(namespace: Namespace) -> dict[str, str]:
    """Returns how many servers have each model ready, such as "1/2"."""
    return {m["name"]: m["pods"] for m in _models(namespace)}


def _ready(namespace: Namespace) -> set[str]:
    return {m["name"] for m in _models(namespace) if m["state"] == "READY"}


def _loaded(namespace: Namespace) -> set[str]:
    assert condition(namespace.api.get("TritonModel", "echo"), "Ready")["status"] == "True"
    return _ready(namespace)


def _lives(namespace: Namespace) -> dict[str, int]:
    """Returns the restarts of each server by pod."""
    return {
        p["metadata"]["name"]: sum(s["restartCount"] for s in p["status"]["containerStatuses"])
        for p in namespace.pods("echo")
    }
