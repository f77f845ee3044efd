"""`kubectl triton calibrate` with a real server, and perf_analyzer beside it."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from support.api import eventually
from support.cluster import ROOT, Namespace

pytestmark = pytest.mark.e2e

POD = "echo-calibration"
SECONDS = 75
"""Enough for some measurements. The benchmark `calibrate` checks the result of a whole search."""


def addresses(namespace: Namespace) -> set[str]:
    """Returns the addresses of the pods that get requests of clients."""
    slices = namespace.api.list("EndpointSlice")
    return {a for s in slices for e in s.get("endpoints") or [] for a in e["addresses"]}


def test_measures_a_server_that_gets_no_other_requests_and_removes_it(namespace: Namespace) -> None:
    # With a limit, neither the server nor the search takes the cores of the other tests.
    resources = {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"cpu": "400m"}}
    server = {"image": namespace.cluster.server_image, "resources": resources}
    namespace.deploy("echo", namespace.cluster.image("echo", "v1"), server=server)
    (server_pod,) = namespace.pods("echo")
    command = [
        ROOT / ".venv" / "bin" / "kubectl-triton", "calibrate", "echo", "-n", namespace.name, "--p99=400ms",
        f"--limit={SECONDS}s", f"--load-image={namespace.cluster.load_generator_image}", "-o", "json",
        "--load-cpu=400m",  # the node of the tests has no whole CPU left
    ]  # fmt: skip
    pod_ips: set[str] = set()
    client_ips: set[str] = set()
    env = {**os.environ, "KUBECONFIG": str(namespace.cluster.kubeconfig)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env) as process:

        def ended() -> bool:
            pod = namespace.api.find("Pod", POD) or {}
            pod_ips.update({pod["status"]["podIP"]} if pod.get("status", {}).get("podIP") else set())
            client_ips.update(addresses(namespace))
            return process.poll() is not None

        eventually(ended, SECONDS + 300, lambda: namespace.api.find("Pod", POD), every=1)
        assert process.stdout is not None
        log = process.stdout.read()
    result: dict[str, Any] = json.loads(log[log.index("{\n") : log.rindex("\n}") + 2])
    # Which rate a server can take on a busy machine, and whether the search ends in time, is the benchmark's business.
    assert result["maxQpsPerReplica"] or result["reason"], log
    assert any(row["latencies"].get("latency", {}).get("p99") for row in result["curve"]), log
    images = {s["name"]: s["imageID"] for s in server_pod["status"]["containerStatuses"]}
    assert result["images"]["triton"] == images["triton"]
    assert "@sha256:" in result["images"]["load"]
    assert "1 doubling" in log
    assert "deleted the pod" in log
    assert pod_ips, "the pod had an address"
    assert client_ips, "the server had an address"
    assert not pod_ips & client_ips
    pod = namespace.api.find("Pod", POD)
    assert pod is None or "deletionTimestamp" in pod["metadata"]
