"""The Prometheus of manifests/monitoring/plain: it finds servers and rules without prometheus-operator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from support.api import eventually
from support.cluster import ROOT, Cluster, Namespace
from support.load import load

pytestmark = [pytest.mark.e2e, pytest.mark.installation]

MANIFESTS = ROOT / "manifests" / "monitoring" / "plain"
ALERT = "TritonModelQpsOverflow"
LIMIT, RATE = "5", 20


class Plain:
    """The current state of this Prometheus."""

    def __init__(self, cluster: Cluster) -> None:
        self._api = cluster.api

    def ask(self, path: str) -> Any:
        service = "/api/v1/namespaces/monitoring/services/plain-prometheus:web/proxy"
        return self._api.request("GET", f"{service}/api/v1/{path}")["data"]

    def alerts(self, namespace: Namespace) -> dict[str, str]:
        found = [one for one in self.ask("alerts")["alerts"] if one["labels"].get("namespace") == namespace.name]
        return {alert["labels"]["alertname"]: alert["state"] for alert in found}

    def scraped(self, job: str) -> set[str]:
        """Returns the pods of a job that it reads without an error."""
        targets = self.ask("targets?state=active")["activeTargets"]
        return {one["labels"]["pod"] for one in targets if one["labels"]["job"] == job and one["health"] == "up"}

    def groups(self, namespace: Namespace) -> list[str]:
        groups = [group["name"] for group in self.ask("rules")["groups"]]
        return [name for name in groups if name.startswith(f"{namespace.name}/")]


@pytest.fixture(scope="module")
def plain(cluster: Cluster) -> Iterator[Plain]:
    objects = cluster.kubectl("kustomize", str(MANIFESTS))
    objects, changed = re.subn(r"image: ghcr\.io/.*", f"image: {cluster.operator_image}", objects)
    assert changed == 1
    kinds = [obj["kind"] for obj in yaml.safe_load_all(objects)]
    assert sorted(kinds) == [
        "ClusterRole", "ClusterRoleBinding", "ConfigMap", "Deployment", "Service", "ServiceAccount",
    ]  # fmt: skip
    cluster.kubectl("apply", "-f", "-", stdin=objects)
    try:
        cluster.kubectl("-n", "monitoring", "rollout", "status", "deployment/plain-prometheus", "--timeout=180s")
        yield Plain(cluster)
    finally:
        cluster.kubectl("delete", "-f", "-", "--wait=false", stdin=objects)


def test_alerts_come_and_thresholds_are_hot(cluster: Cluster, shared_namespace: Namespace, plain: Plain) -> None:
    namespace, name = shared_namespace, "echo"
    model = namespace.model(name, cluster.image(), replicas=2)
    annotations = {"tritonoperator.io/max-qps": LIMIT}
    namespace.api.apply({**model, "metadata": {**model["metadata"], "annotations": annotations}})
    namespace.wait_until_complete(name)
    pods = {pod["metadata"]["name"] for pod in namespace.pods(name)}
    job = f"{namespace.name}/{name}"
    with load(namespace, name, RATE):
        eventually(lambda: plain.scraped(job) == pods, 120, lambda: plain.ask("targets"))
        assert len(plain.scraped("triton-operator-metrics")) == 2
        eventually(lambda: plain.alerts(namespace).get(ALERT) == "firing", 240, lambda: plain.alerts(namespace))
        namespace.kubectl("annotate", "tritonmodel", name, "tritonoperator.io/max-qps=1000", "--overwrite")
        eventually(lambda: ALERT not in plain.alerts(namespace), 60, lambda: plain.alerts(namespace))
    assert sorted(plain.groups(namespace)) == [job, f"{job}-limits", f"{job}-slow"]
    namespace.api.delete("TritonModel", name)
    eventually(lambda: plain.groups(namespace) == [], 120, lambda: plain.ask("rules"))
    eventually(lambda: plain.scraped(job) == set(), 60, lambda: plain.ask("targets"))
