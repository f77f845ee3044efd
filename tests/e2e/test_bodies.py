"""Large bodies of several types, over HTTP, to servers as the operator starts them."""

from __future__ import annotations

import json

import pytest

from support.api import eventually
from support.cluster import ROOT, Cluster, Namespace
from support.load import client_pod, ended

pytestmark = pytest.mark.e2e

SCRIPT = ROOT / "tests" / "e2e" / "client" / "bodies.py"


@pytest.mark.parametrize("delivery", ["Copy", "ImageVolume"])
def test_no_large_body_ends_a_server(cluster: Cluster, namespace: Namespace, delivery: str) -> None:
    image = {"reference": cluster.sample_image("passthrough"), "delivery": delivery}
    # The model has three instances, which keep copies of large inputs and outputs in shared memory.
    namespace.deploy("echo", "", modelImage=image, entrypoint="passthrough", server={"sharedMemory": "2Gi"})
    server = _server(namespace)
    namespace.api.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "client"},
         "data": {SCRIPT.name: SCRIPT.read_text()}}
    )  # fmt: skip
    namespace.api.apply(client_pod("client", cluster.client_image, ["python", f"/client/{SCRIPT.name}", "echo"]))
    eventually(lambda: ended(namespace, "client"), 300, "the client to send all bodies")
    result = json.loads(namespace.kubectl("logs", "client").splitlines()[-1])

    assert result == {"sent": 25, "failures": {}}
    assert _server(namespace) == server


def _server(namespace: Namespace) -> tuple[str, int]:
    """Returns the server's container and the number of its restarts."""
    [pod] = namespace.pods("echo")
    [server] = pod["status"]["containerStatuses"]
    return server["containerID"], server["restartCount"]
