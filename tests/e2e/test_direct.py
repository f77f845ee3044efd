"""The engine Direct with a real HorizontalPodAutoscaler, Prometheus and prometheus-adapter."""

from __future__ import annotations

from typing import Any

import pytest

from support.api import Object, eventually
from support.cluster import Cluster, Namespace
from support.live import SPEC, Subject
from support.load import load
from support.prometheus import Monitoring
from support.recorded import Replicas

pytestmark = pytest.mark.e2e

PER_REPLICA = "tritonoperator.io/max-qps-per-replica"
SCALING = {
    "engine": "Direct",
    "min": 1,
    "max": 2,
    "behavior": {"scaleUp": {"stabilizationWindowSeconds": 0}, "scaleDown": {"stabilizationWindowSeconds": 0}},
}


def test_adds_a_server_itself_and_leaves_the_removal_to_the_autoscaler(
    cluster: Cluster, monitoring: Monitoring, namespace: Namespace
) -> None:
    model = namespace.model("echo", cluster.image(), autoscaling=SCALING, **SPEC)
    annotations = {PER_REPLICA: "15", "tritonoperator.io/max-qps": "1000"}
    namespace.api.apply({**model, "metadata": {**model["metadata"], "annotations": annotations}})
    namespace.wait_until_complete("echo")
    subject = Subject(monitoring, namespace, "echo")
    subject.wait_for_metrics(hurry=True)
    replicas = Replicas(namespace.api, "echo")
    with load(namespace, "echo", 20) as traffic:
        # 20 requests per second need two servers: the limit of each is 15, the utilization three quarters.
        eventually(lambda: replicas.seen == [1, 2], 180, lambda: described(namespace, replicas))
        assert "lastScaleTime" not in autoscaler(namespace)["status"], described(namespace, replicas)
        eventually(lambda: autoscaling(namespace)["reason"] == "ScaledUp", 60, lambda: described(namespace, replicas))
        assert autoscaler(namespace)["spec"]["minReplicas"] == 2
        # Before the load it wanted fewer servers than its minimum, too.
        eventually(lambda: not limited(namespace), 120, lambda: described(namespace, replicas))
        # With a higher limit one server is enough. The autoscaler wants one, and the floor keeps both for a while.
        subject.annotate(f"{PER_REPLICA}=100")
        eventually(lambda: limited(namespace), 120, lambda: described(namespace, replicas))
        assert replicas.seen == [1, 2]
        eventually(lambda: replicas.seen == [1, 2, 1], 300, lambda: described(namespace, replicas), every=1)
        eventually(
            lambda: "lastScaleTime" in autoscaler(namespace)["status"], 60, lambda: described(namespace, replicas)
        )
        eventually(lambda: autoscaling(namespace)["reason"] == "LeftToHPA", 60, lambda: described(namespace, replicas))
    assert traffic.failures() == []


def autoscaler(namespace: Namespace) -> Object:
    return namespace.api.get("HorizontalPodAutoscaler", "echo")


def limited(namespace: Namespace) -> bool:
    """Returns whether the autoscaler wants fewer servers than its minimum."""
    conditions = autoscaler(namespace)["status"].get("conditions", [])
    return ("ScalingLimited", "True", "TooFewReplicas") in {(c["type"], c["status"], c["reason"]) for c in conditions}


def autoscaling(namespace: Namespace) -> dict[str, Any]:
    status: dict[str, Any] = namespace.api.get("TritonModel", "echo")["status"].get("autoscaling", {})
    return status


def described(namespace: Namespace, replicas: Replicas) -> str:
    """Returns the decision and the autoscaler, for failure messages."""
    hpa = autoscaler(namespace)
    minimum = hpa["spec"]["minReplicas"]
    return f"{replicas.seen} servers; {autoscaling(namespace)}; minReplicas {minimum}; {hpa.get('status')}"
