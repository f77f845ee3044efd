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
    old = {pod["metadata"]["name"] for pod in namespace.pods("accumulator")}
    scripts = {path.name: path.read_text() for path in SCRIPTS}
    namespace.api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "client"}, "data": scripts})
    command = ["python", "/client/open_sequences.py", "accumulator-headless"]
    namespace.api.apply(client_pod("client", cluster.client_image, command))
    out = eventually(lambda: _log(namespace), 60, lambda: namespace.kubectl("describe", "pod", "client"), every=0.3)
    assert "started" in out, out

    namespace.kubectl("rollout", "restart", "deployment/accumulator")

    def replaced() -> bool:
        """Returns whether the old servers terminate and the new ones are ready."""
        pods = {
            pod["metadata"]["name"]: pod for pod in namespace.api.list("Pod", "tritonoperator.io/model=accumulator")
        }
        return all("deletionTimestamp" in pods[name]["metadata"] for name in old)

    eventually(replaced, 90, "the old servers to terminate", every=0.3)
    namespace.kubectl("exec", "client", "--", "touch", "/tmp/stop")
    phase = eventually(lambda: ended(namespace, "client"), 60, "the sequences to end")
    out = namespace.kubectl("logs", "client")
    assert phase == "Succeeded", out
    result = json.loads(out.splitlines()[-1])
    assert [one["lost"] for one in result["open"]] == [""] * 4
    for one in result["open"]:
        assert one["sums"] == list(range(1, len(one["sums"]) + 1))
        assert len(one["servers"]) == 1
    assert {server for one in result["open"] for server in one["servers"]} == old
    # New sequences don't start on servers that terminate.
    assert [one["sums"] for one in result["new"]] == [[1, 3], [1, 3]]
    assert old.isdisjoint(one["server"] for one in result["new"])


def _log(namespace: Namespace) -> str:
    """Returns the client's log after the sequences started or the pod ended, else ""."""
    out = namespace.kubectl("logs", "client", check=False)
    return out if "started" in out or ended(namespace, "client") else ""
