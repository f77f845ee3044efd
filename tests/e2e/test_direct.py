"""The engine Direct with a real HorizontalPodAutoscaler, Prometheus and prometheus-adapter."""

from __future__ import annotations

import time

import pytest

from support.api import eventually
from support.cluster import Cluster, Namespace
from support.live import SPEC, Subject
from support.load import load
from support.prometheus import Monitoring

pytestmark = pytest.mark.e2e

REACTION_SECONDS = 15.0
"""Half of the time that the HorizontalPodAutoscaler alone needs for the same step."""
SCALING = {
    "engine": "Direct",
    "min": 1,
    "max": 3,
    "behavior": {"scaleUp": {"stabilizationWindowSeconds": 0}, "scaleDown": {"stabilizationWindowSeconds": 0}},
}


def test_adds_servers_within_seconds_and_the_autoscaler_removes_them(
    cluster: Cluster, monitoring: Monitoring, namespace: Namespace
) -> None:
    model = namespace.model("echo", cluster.image(), autoscaling=SCALING, **SPEC)
    annotations = {"tritonoperator.io/max-qps-per-replica": "15", "tritonoperator.io/max-qps": "1000"}
    namespace.api.apply({**model, "metadata": {**model["metadata"], "annotations": annotations}})
    namespace.wait_until_complete("echo")
    Subject(monitoring, namespace, "echo").known(hurry=True)

    with load(namespace, "echo", 4, "light") as light:
        # The counters of the servers are known before the step.
        time.sleep(10)
        with load(namespace, "echo", 16, "heavy") as heavy:
            began = time.monotonic()
            eventually(lambda: replicas(namespace) == 2, 60, lambda: described(namespace), every=0.2)
            took = time.monotonic() - began
            assert took < REACTION_SECONDS, (took, described(namespace))
            assert autoscaling(namespace)["reason"] == "ScaledUp"
            # Nothing takes the server back while the autoscaler doesn't see the load yet.
            end = time.monotonic() + 60
            while time.monotonic() < end:
                assert replicas(namespace) >= 2, described(namespace)
                time.sleep(1)
        # Without the load, the floor ends, and the autoscaler removes the server.
        eventually(lambda: replicas(namespace) == 1, 300, lambda: described(namespace), every=1)
        assert autoscaling(namespace)["reason"] == "LeftToHPA"
    assert heavy.failures() == light.failures() == []


def replicas(namespace: Namespace) -> int:
    return int(namespace.api.get("Deployment", "echo")["spec"]["replicas"])


def autoscaling(namespace: Namespace) -> dict[str, str]:
    found: dict[str, str] = namespace.api.get("TritonModel", "echo")["status"]["autoscaling"]
    return found


def described(namespace: Namespace) -> str:
    """Returns the decision and the autoscaler, for failure messages."""
    autoscaler = namespace.api.get("HorizontalPodAutoscaler", "echo")
    status = namespace.api.get("TritonModel", "echo")["status"].get("autoscaling")
    return f"{status}; minReplicas {autoscaler['spec']['minReplicas']}; {autoscaler.get('status')}"
