"""Autoscaling with a real Prometheus, prometheus-adapter and HorizontalPodAutoscaler, and `kubectl scale` without."""

from __future__ import annotations

from typing import Any

import pytest

from support.api import eventually
from support.cluster import Cluster, Namespace
from support.live import SPEC, Subject
from support.load import load
from support.prometheus import Monitoring
from support.recorded import Replicas

pytestmark = pytest.mark.e2e

PER_REPLICA = "tritonoperator.io/max-qps-per-replica"
LIGHT, HEAVY = 4, 16
AUTOSCALING = {
    "min": 1,
    "max": 3,
    "utilization": 0.75,
    "behavior": {"scaleUp": {"stabilizationWindowSeconds": 0}, "scaleDown": {"stabilizationWindowSeconds": 0}},
}


@pytest.fixture(scope="module")
def scaled(cluster: Cluster, monitoring: Monitoring, shared_namespace: Namespace) -> Subject:
    """Creates an autoscaled TritonModel with 15 requests per second and server, and waits until Prometheus knows it."""
    model = shared_namespace.model("echo", cluster.image(), autoscaling=AUTOSCALING, **SPEC)
    annotations = {PER_REPLICA: "15", "tritonoperator.io/max-qps": "1000"}
    shared_namespace.api.apply({**model, "metadata": {**model["metadata"], "annotations": annotations}})
    shared_namespace.wait_until_complete("echo")
    subject = Subject(monitoring, shared_namespace, "echo")
    subject.wait_for_metrics(hurry=True)
    return subject


@pytest.mark.path
def test_scales_with_the_load_without_a_failed_request(scaled: Subject, shared_namespace: Namespace) -> None:
    lives, replicas = scaled.lives(), Replicas(shared_namespace.api, "echo")
    template = _template(shared_namespace)
    with load(shared_namespace, "echo", LIGHT, "light") as light:
        with load(shared_namespace, "echo", HEAVY, "heavy") as heavy:
            # 20 requests per second need two servers: the limit of each is 15, the utilization three quarters.
            _wait(shared_namespace, 2)
            shared_namespace.wait_for_condition("echo", "AutoscalerActive", "True", "Scaling")
            # A lower limit per server needs one more server, and doesn't change the pod template. The load would need
            # five servers, so that the maximum is reached on a machine, too, that sends only two thirds of it.
            scaled.annotate(f"{PER_REPLICA}=6")
            _wait(shared_namespace, 3)
            assert shared_namespace.wait_for_condition("echo", "AutoscalerActive", "True", "AtMaximum")
            assert _template(shared_namespace) == template
        _wait(shared_namespace, 1)
        # Wait until the removed servers have drained, to count failures until then.
        eventually(lambda: len(_all_pods(shared_namespace)) == 1, 90, lambda: _all_pods(shared_namespace))
    assert heavy.failures() == light.failures() == []
    # On a busy machine the load may fall for a moment, and servers are removed and added again.
    first, *between, last = replicas.seen
    assert (first, set(between) - {1}, last) == (1, {2, 3}, 1), "another writer changed replicas"
    assert "triton-operator" not in _writers(shared_namespace), "another writer changed replicas"
    assert _template(shared_namespace) == template
    assert sum(lives.values()) == sum(scaled.lives().values())


def test_kubectl_scales_a_tritonmodel_without_autoscaling(cluster: Cluster, namespace: Namespace) -> None:
    namespace.api.apply(namespace.model("still", cluster.image(), replicas=0))
    eventually(lambda: namespace.api.find("Deployment", "still"), 60, lambda: namespace.conditions_text("still"))
    namespace.kubectl("scale", "tm/still", "--replicas=2")
    model = namespace.wait_until_complete("still")
    assert (model["spec"]["replicas"], model["status"]["readyReplicas"]) == (2, 2)
    assert len(namespace.pods("still")) == 2
    namespace.kubectl("scale", "tm/still", "--replicas=1")
    eventually(lambda: len(namespace.pods("still")) == 1, 60)


def _wait(namespace: Namespace, servers: int) -> None:
    """Waits until the autoscaler wants this number of servers and they are ready."""

    def look() -> bool:
        desired = namespace.api.get("HorizontalPodAutoscaler", "echo")["status"].get("desiredReplicas")
        ready = namespace.api.get("TritonModel", "echo")["status"].get("readyReplicas", 0)
        return desired == ready == servers

    eventually(look, 240, lambda: f"{servers} servers; {_status(namespace)}", every=0.5)


def _status(namespace: Namespace) -> str:
    status = namespace.api.get("HorizontalPodAutoscaler", "echo").get("status", {})
    return f"{status}\n{namespace.conditions_text('echo')}"


def _template(namespace: Namespace) -> dict[str, Any]:
    template: dict[str, Any] = namespace.api.get("Deployment", "echo")["spec"]["template"]
    return template


def _all_pods(namespace: Namespace) -> list[str]:
    """Returns the names of the servers' pods, including terminating ones."""
    return [p["metadata"]["name"] for p in namespace.api.list("Pod", "tritonoperator.io/model=echo")]


def _writers(namespace: Namespace) -> set[str]:
    """Returns the managers that own the Deployment's `replicas`."""
    fields = namespace.api.get("Deployment", "echo")["metadata"]["managedFields"]
    return {f["manager"] for f in fields if "f:replicas" in f["fieldsV1"].get("f:spec", {})}
