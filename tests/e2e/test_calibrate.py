"""`kubectl triton calibrate` with a real server, and perf_analyzer beside it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from support.api import eventually
from support.cluster import ROOT, Namespace

pytestmark = pytest.mark.e2e

POD, ACCOUNT = "echo-calibration", "calibrator"
SECONDS = 75
"""Enough for some measurements. The benchmark `calibrate` checks the result of a whole search."""


def addresses(namespace: Namespace) -> set[str]:
    """Returns the addresses of the pods that get requests of clients."""
    slices = namespace.api.list("EndpointSlice")
    return {a for s in slices for e in s.get("endpoints") or [] for a in e["addresses"]}


def test_a_job_measures_a_server_that_gets_no_other_requests_and_removes_it(namespace: Namespace) -> None:
    namespace.deploy("echo", namespace.cluster.image("echo", "v1"))
    server = next(iter(namespace.pods("echo")))
    namespace.kubectl("create", "serviceaccount", ACCOUNT)
    for role in ("edit", "tritonmodel-viewer"):
        account = f"--serviceaccount={namespace.name}:{ACCOUNT}"
        namespace.kubectl("create", "rolebinding", f"{ACCOUNT}-{role}", f"--clusterrole={role}", account)
    command = [
        ROOT / ".venv" / "bin" / "kubectl-triton", "calibrate", "echo", "-n", namespace.name, "--p99=400ms",
        f"--limit={SECONDS}s", f"--load-image={namespace.cluster.load_generator_image}", "-o", "json",
        "--load-cpu=400m",  # the node of the tests has no whole CPU left
        f"--as-job={ACCOUNT}", f"--job-image={namespace.cluster.operator_image}",
    ]  # fmt: skip
    manifest = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    job = namespace.kubectl("create", "-f", "-", "-o", "name", stdin=manifest).strip()
    seen: set[str] = set()
    served: set[str] = set()

    def ended() -> bool:
        pod = namespace.api.find("Pod", POD) or {}
        seen.update({pod["status"]["podIP"]} if pod.get("status", {}).get("podIP") else set())
        served.update(addresses(namespace))
        status = namespace.api.get("Job", job.partition("/")[2]).get("status", {})
        return bool(status.get("succeeded") or status.get("failed"))

    eventually(ended, SECONDS + 300, lambda: namespace.kubectl("logs", job, check=False), every=1)
    log = namespace.kubectl("logs", job)
    found: dict[str, Any] = json.loads(log[log.index("{\n") : log.rindex("\n}") + 2])
    assert found["maxQpsPerReplica"] or "time limit" in found["reason"], found["reason"]
    # Above the server's capacity some requests may fail.
    assert any(row["p99"] is not None and 0 < row["p99"] < 0.4 for row in found["curve"]), log
    images = {s["name"]: s["imageID"] for s in server["status"]["containerStatuses"]}
    assert found["images"]["triton"] == images["triton"]
    assert "@sha256:" in found["images"]["load"]
    assert "1 doubling" in log
    assert "deleted the pod" in log
    assert seen, "the pod had an address"
    assert served, "the server had an address"
    assert not seen & served
    pod = namespace.api.find("Pod", POD)
    assert pod is None or "deletionTimestamp" in pod["metadata"]
