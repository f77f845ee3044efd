"""A canary without a Gateway: real servers behind a Service, and clients of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from support.api import condition, eventually
from support.cluster import Cluster, Namespace

pytestmark = pytest.mark.e2e

Loader = Callable[..., AbstractContextManager[Any]]


def test_clients_of_the_service_get_both_and_no_request_fails(
    cluster: Cluster, namespace: Namespace, load: Loader
) -> None:
    namespace.deploy("echo", cluster.image(change="v1"), replicas=2)
    uids = {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
    with load("echo") as traffic:
        canary = {"modelImage": {"reference": cluster.image(change="v2")}, "weight": 50}
        namespace.api.patch("TritonModel", "echo", {"spec": {"canary": canary}})
        message = namespace.wait_for_condition("echo", "Canary", "True", "ByServers")
        namespace.wait_until_complete("echo")
        eventually(lambda: traffic.reaches("v2"), 60, traffic.log)
        assert "% of the connections" in message
        pods = {pod["metadata"]["uid"] for pod in namespace.pods("echo")}
        assert uids < pods
        assert len(pods) == 4

        namespace.api.patch("TritonModel", "echo", {"spec": {"canary": None}})
        eventually(lambda: {pod["metadata"]["uid"] for pod in namespace.pods("echo")} == uids, 120, "the canary's end")
    assert traffic.failures() == []
    assert not condition(namespace.wait_until_complete("echo"), "Canary")
    with load("echo", name="after") as traffic:
        pass
    assert set(traffic.result["http"]["versions"]) == {"v1"}


def test_a_canary_that_does_not_load_gets_no_request(cluster: Cluster, namespace: Namespace, load: Loader) -> None:
    namespace.deploy("echo", cluster.image(change="v1"))
    with load("echo") as traffic:
        canary = {"modelImage": {"reference": cluster.image(change="raises")}, "weight": 50}
        namespace.api.patch("TritonModel", "echo", {"spec": {"canary": canary}})
        message = namespace.wait_for_condition("echo", "Canary", "False", "CanaryNotReady")
        assert "the weights are from Tuesday" in message
        model = namespace.api.get("TritonModel", "echo")
        assert condition(model, "Ready")["status"] == "True"
        namespace.api.patch("TritonModel", "echo", {"spec": {"canary": None}})
        namespace.wait_until_complete("echo")
    assert traffic.failures() == []
    assert set(traffic.result["grpc"]["versions"]) == {"v1"}


def test_a_canary_that_fails_gets_no_connections_any_more(cluster: Cluster, namespace: Namespace, load: Loader) -> None:
    namespace.deploy("echo", cluster.image(change="v1"), replicas=2)
    with load("echo") as traffic:
        canary = {"modelImage": {"reference": cluster.image(change="fails")}, "weight": 50}
        namespace.api.patch("TritonModel", "echo", {"spec": {"canary": canary}})
        message = namespace.wait_for_condition("echo", "Canary", "False", "CanaryWorse")
        assert "of its requests failed, and 0 of" in message
    assert all("the labels are missing" in failure for failure in traffic.failures())
    with load("echo", name="after") as traffic:
        pass
    assert traffic.failures() == []
    assert set(traffic.result["http"]["versions"]) == {"v1"}
