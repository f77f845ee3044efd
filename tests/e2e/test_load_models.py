"""A change of spec.server.loadModels on running servers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from support.api import condition, eventually
from support.cluster import Cluster, Namespace

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

Loader = Callable[..., AbstractContextManager[Any]]


def test_load_models_change_on_running_servers_without_a_failed_request(
    cluster: Cluster, namespace: Namespace, load: Loader
) -> None:
    explicit = {"modelControl": "explicit", "loadModels": ["echo"]}
    namespace.deploy("echo", cluster.image(change="two"), replicas=2, server=explicit)
    before = _lives(namespace)

    with load("echo") as during:
        _set(namespace, "echo", "other")
        # The next leader continues.
        cluster.kubectl("-n", "triton-operator", "delete", "pod", cluster.leader(), "--grace-period=0", "--force")
        found = namespace.wait_until_complete("echo")
        assert {m["name"]: m["pods"] for m in found["status"]["models"]} == {"echo": "2/2", "other": "2/2"}
        deployment = namespace.api.get("Deployment", "echo")
        assert not deployment["spec"].get("paused")
        assert _arguments(deployment["spec"]["template"]["spec"]) == ["echo", "other"]
        assert len(_sets(namespace)) == 1

        _set(namespace, "echo", "nothing")
        words = namespace.wait_for_condition("echo", "Progressing", "False", "ModelLoadFailed")
        assert "failed to load 'nothing'" in words, words
        found = namespace.api.get("TritonModel", "echo")
        ready = {m["name"] for m in found["status"]["models"] if m["state"] == "READY"}
        assert ready == {"echo", "other"}, "nothing is unloaded"
        assert _lives(namespace) == before

        _set(namespace, "echo")
        namespace.wait_until_complete("echo")
        eventually(lambda: _loaded(namespace) == {"echo"}, 90, lambda: str(_loaded(namespace)))
        assert _lives(namespace) == before
    assert during.failures() == []

    namespace.api.patch("TritonModel", "echo", {"spec": {"replicas": 3}})
    namespace.wait_until_complete("echo")
    later = [p for p in namespace.pods("echo") if p["metadata"]["name"] not in before]
    assert [_arguments(p["spec"]) for p in later] == [["echo"]]
    assert {name: _lives(namespace)[name] for name in before} == before


def _set(namespace: Namespace, *models: str) -> None:
    namespace.api.patch("TritonModel", "echo", {"spec": {"server": {"loadModels": list(models)}}})


def _arguments(spec: dict[str, Any]) -> list[str]:
    arguments = spec["containers"][0]["args"]
    return [a.removeprefix("--load-model=") for a in arguments if a.startswith("--load-model=")]


def _sets(namespace: Namespace) -> list[Any]:
    return namespace.api.list("ReplicaSet")


def _loaded(namespace: Namespace) -> set[str]:
    status = namespace.api.get("TritonModel", "echo")["status"]
    assert condition(namespace.api.get("TritonModel", "echo"), "Ready")["status"] == "True"
    return {m["name"] for m in status["models"] if m["state"] == "READY"}


def _lives(namespace: Namespace) -> dict[str, int]:
    """Returns the restarts of each server by pod."""
    return {
        p["metadata"]["name"]: sum(s["restartCount"] for s in p["status"]["containerStatuses"])
        for p in namespace.pods("echo")
    }
