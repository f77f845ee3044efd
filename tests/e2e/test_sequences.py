"""Sequences of the sample client stay on their servers while a rollout replaces these."""

from __future__ import annotations

import json

import pytest

from support.api import eventually
from support.cluster import ROOT, Cluster, Namespace
from support.load import client_pod, ended

pytestmark = pytest.mark.e2e

SCRIPTS = (ROOT / "model_images/accumulator/client/sequences.py", ROOT / "tests/e2e/client/open_sequences.py")


def test_open_sequences_end_on_the_servers_that_a_rollout_replaces(cluster: Cluster, namespace: Namespace) -> None:
    # Open sequences need the drain; the rest of the test doesn't wait for it.
    spec = {"entrypoint": "accumulator", "replicas": 2, "rollout": {"drainSeconds": 60, "maxSurge": 2}}
    namespace.deploy("accumulator", cluster.sample_image("accumulator"), **spec)
    names = {pod["metadata"]["name"] for pod in namespace.pods("accumulator")}
    scripts = {path.name: path.read_text() for path in SCRIPTS}
    namespace.api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "client"}, "data": scripts})
    command = ["python", "/client/open_sequences.py", "accumulator-headless"]
    namespace.api.apply(client_pod("client", cluster.client_image, command))
    out = eventually(lambda: _log(namespace), 180, "the sequences to start", every=0.3)
    assert "started" in out, out

    namespace.kubectl("rollout", "restart", "deployment/accumulator")

    def replaced() -> bool:
        """Returns whether the old servers terminate."""
        return names.isdisjoint(pod["metadata"]["name"] for pod in namespace.pods("accumulator"))

    eventually(replaced, 90, "the old servers to terminate", every=0.3)
    namespace.kubectl("exec", "client", "--", "touch", "/tmp/stop")
    phase = eventually(lambda: ended(namespace, "client"), 60, "the sequences to end")
    out = namespace.kubectl("logs", "client")
    assert phase == "Succeeded", out
    result = json.loads(out.splitlines()[-1])
    assert [record["lost"] for record in result["open"]] == [""] * 4
    for record in result["open"]:
        assert record["sums"] == list(range(1, len(record["sums"]) + 1))
        assert len(record["servers"]) == 1
    assert {server for record in result["open"] for server in record["servers"]} == names
    # New sequences don't start on servers that terminate.
    assert [record["sums"] for record in result["new"]] == [[1, 3], [1, 3]]
    assert names.isdisjoint(record["server"] for record in result["new"])


def _log(namespace: Namespace) -> str:
    """Returns the client's log after the sequences started or the pod ended, else ""."""
    out = namespace.kubectl("logs", "client", check=False)
    return out if "started" in out or ended(namespace, "client") else ""
