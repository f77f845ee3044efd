"""`kubectl triton calibrate` with a real server, and perf_analyzer beside it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from support.cluster import ROOT, Namespace

pytestmark = pytest.mark.e2e

POD = "echo-calibration"
SECONDS = 75
"""Enough for some measurements. The benchmark `calibrate` checks the result of a whole search."""


def addresses(namespace: Namespace) -> set[str]:
    """Returns the addresses of the pods that get requests of clients."""
    slices = namespace.api.list("EndpointSlice")
    return {a for s in slices for e in s.get("endpoints") or [] for a in e["addresses"]}


def test_measures_a_server_that_gets_no_other_requests_and_removes_it(namespace: Namespace, tmp_path: Path) -> None:
    namespace.deploy("echo", namespace.cluster.image("echo", "v1"))
    server = next(iter(namespace.pods("echo")))
    command = [
        ROOT / ".venv" / "bin" / "kubectl-triton", "calibrate", "echo", "-n", namespace.name, "--p99=400ms",
        f"--limit={SECONDS}s", f"--load-image={namespace.cluster.load_generator_image}",
        f"--svg={tmp_path / 'curve.svg'}", "-o", "json",
        "--load-cpu=400m",  # the node of the tests has no whole CPU left
    ]  # fmt: skip
    env = {**os.environ, "KUBECONFIG": str(namespace.cluster.kubeconfig)}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seen: set[str] = set()
    served: set[str] = set()
    try:
        while process.poll() is None:
            pod = namespace.api.find("Pod", POD) or {}
            seen |= {pod["status"]["podIP"]} if pod.get("status", {}).get("podIP") else set()
            served |= addresses(namespace)
            time.sleep(1)
        output, progress = process.communicate(timeout=60)
    finally:
        process.kill()
    assert output, progress
    found: dict[str, Any] = json.loads(output)
    assert found["maxQpsPerReplica"] or "time limit" in found["reason"], found["reason"]
    assert not any(row["failures"] for row in found["curve"]), progress
    assert any(row["p99"] is not None and 0 < row["p99"] < 0.4 for row in found["curve"]), progress
    images = {s["name"]: s["imageID"] for s in server["status"]["containerStatuses"]}
    assert found["images"]["triton"] == images["triton"]
    assert "@sha256:" in found["images"]["load"]
    assert "1 doubling" in progress
    assert (tmp_path / "curve.svg").read_text().startswith("<svg")
    assert seen, "the pod had an address"
    assert served, "the server had an address"
    assert not seen & served
    pod = namespace.api.find("Pod", POD)
    assert pod is None or "deletionTimestamp" in pod["metadata"]
