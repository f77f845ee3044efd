"""Runs the operator as a separate process with the RBAC of manifests/rbac."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import yaml

from . import ports
from .api import MIN_WAIT_SECONDS, Object, RefusedError, eventually
from .controlplane import ROOT, ControlPlane

NAMESPACE = NAME = "triton-operator"
TOOLS_IMAGE = "registry.example.com/triton-operator:1"


class Operator:
    """A running operator. `log` is its output so far."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self._port, self._log = process, port, log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def get(self, path: str) -> str:
        """Sends a GET to the operator's HTTP server. Returns the body, or "" without a response with status 200."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=20) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def is_leader(self) -> bool:
        return "triton_operator_leading 1.0" in self.get("/metrics")

    def writes(self) -> float:
        """Returns the operator's writes to the API server from its metrics, without those of the Lease."""
        found = re.findall(r"triton_operator_api_requests_total\{(.*)\} (\S+)", self.get("/metrics"))
        return sum(float(n) for labels, n in found if not re.search('verb="(GET|LIST)"|resource="leases"', labels))

    def metric_sum(self, metric: str, **labels: str) -> float:
        """Returns the sum of all series of one of the operator's metrics with these labels."""
        found = re.findall(rf"^{metric}(?:\{{(.*)\}})? (\S+)$", self.get("/metrics"), re.MULTILINE)
        return sum(float(n) for has, n in found if labels.items() <= dict(re.findall(r'(\w+)="([^"]*)"', has)).items())

    def reconciles(self, **labels: str) -> float:
        """Returns the number of reconciles, for example with result="ok"."""
        return self.metric_sum("triton_operator_reconciles_total", **labels)

    def stop(self, how: signal.Signals = signal.SIGTERM, within: float = MIN_WAIT_SECONDS) -> int:
        """Ends the operator with the signal `how` and returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(within)


def install(plane: ControlPlane, *, bind_cluster: bool = True) -> Path:
    """Installs the operator's namespace, ServiceAccount and roles. Returns a kubeconfig with these rights."""
    with contextlib.suppress(RefusedError):
        plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    account: Object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": NAMESPACE}}
    plane.api.apply(account)
    for obj in yaml.safe_load_all((ROOT / "manifests" / "rbac" / "operator.yaml").read_text()):
        scope = f"/namespaces/{obj['metadata']['namespace']}" if "namespace" in obj["metadata"] else ""
        path = f"/apis/{obj['apiVersion']}{scope}/{obj['kind'].lower()}s/{obj['metadata']['name']}"
        if obj["kind"] == "ClusterRoleBinding" and not bind_cluster:
            continue
        query = "?fieldManager=test&force=true"
        plane.api.request("PATCH", path + query, obj, "application/apply-patch+yaml")
    return plane.kubeconfig_of(NAMESPACE, NAME)


@contextlib.contextmanager
def running(kubeconfig: Path, folder: Path, *, lead: bool = True, wait: bool = True, **env: str) -> Iterator[Operator]:
    """Runs an operator while the context lasts.

    `wait`: waits until it is ready and, if `lead`, until it is the leader.
    """
    [port] = ports.free()
    log = folder / f"operator-{port}.log"
    settings = {
        "KUBECONFIG": str(kubeconfig), "TOOLS_IMAGE": TOOLS_IMAGE, "PORT": str(port), "POD_NAME": f"operator-{port}",
        "POD_NAMESPACE": NAMESPACE, "PROGRESS_SECONDS": "0",
        **{k: os.environ[k] for k in ("PATH", "PYTHONPATH") if k in os.environ}, **env,
    }  # fmt: skip
    command = [Path(sys.executable).parent / "triton-operator", "run"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=settings, stdout=out, stderr=out)
    operator = Operator(process, port, log)

    def up() -> bool:
        assert process.poll() is None, operator.log
        return operator.get("/readyz") == "ok" and (operator.is_leader() or not lead)

    try:
        if wait:
            eventually(up, 40, lambda: operator.log)
        yield operator
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
