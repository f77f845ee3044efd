"""Runs the operator as a separate process with the RBAC of manifests/rbac."""

from __future__ import annotations

import contextlib
import enum
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import yaml

from . import children, evidence, ports
from .api import MIN_WAIT_SECONDS, START_SECONDS, Object, RefusedError, eventually, note
from .controlplane import ROOT, ControlPlane

NAMESPACE = NAME = "triton-operator"
LOST_LEASE = "not leading"
TOOLS_IMAGE = "registry.example.com/triton-operator:1"


class Restart(enum.Enum):
    """When an ended process is started again."""

    NEVER = "never"
    AFTER_A_LOST_LEASE = "after it has lost its Lease"
    """On a busy machine the API server may not answer in time, or the operator may not run. A pod starts it again."""
    ALWAYS = "always"
    """As a kubelet does."""


class Operator:
    """A running operator, of one process after another.

    `log` is the output of all of them so far, `exit_codes` has those of the ended ones that were started again, and
    `crashes` the ends of the logs of those that nobody killed and that have not lost their Lease.
    """

    def __init__(
        self, settings: dict[str, str], port: int, probe_port: int, log: Path, restart: Restart, program: Path | None
    ) -> None:
        self._settings, self._port, self._probe_port, self._log, self._restart, self._program = (
            settings,
            port,
            probe_port,
            log,
            restart,
            program,
        )
        self._over, self._starting = False, threading.Lock()
        log.touch()
        self.exit_codes: list[int] = []
        self.crashes: list[str] = []
        self.process = self._start()
        threading.Thread(target=self._start_again, daemon=True).start()

    def _start(self) -> subprocess.Popen[bytes]:
        own = [Path(sys.executable).parent / "triton-operator", "run"]
        command = own if self._program is None else [Path(sys.executable), self._program]
        self._begin = self._log.stat().st_size
        with self._log.open("ab") as out:
            return children.start(command, env=self._settings, stdout=out, stderr=out)

    def _start_again(self) -> None:
        while True:
            code = self.process.wait()
            with self._starting:
                if self._over or not self._is_restarted():
                    return
                self.exit_codes.append(code)
                if code != -signal.SIGKILL and not self.lost_lease:
                    self.crashes.append(f"exit code {code}: {self._own_log()[-600:]}")
            # Shorter than a kubelet's back-off, but long enough that a crash loop doesn't use all CPU.
            time.sleep(0.5)
            with self._starting:
                if self._over:
                    return
                self.process = self._start()

    def _is_restarted(self) -> bool:
        return self._restart is Restart.ALWAYS or (self._restart is Restart.AFTER_A_LOST_LEASE and self.lost_lease)

    def _own_log(self) -> str:
        """Returns the log of the current process."""
        return self._log.read_bytes()[self._begin :].decode(errors="replace")

    @property
    def starts(self) -> int:
        """How often it has started."""
        return len(self.exit_codes) + 1

    @property
    def lost_lease(self) -> bool:
        """Whether the current process ended because it lost its Lease."""
        return self.process.poll() == 1 and LOST_LEASE in self._own_log()

    @property
    def errors(self) -> list[str]:
        """The lines of the log with errors, except for a lost Lease, which a busy machine causes."""
        return [line for line in self.log.splitlines() if '"level": "ERROR"' in line and LOST_LEASE not in line]

    @property
    def memory(self) -> float:
        """The resident memory of the current process in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024

    def kill(self) -> None:
        """Kills the current process with SIGKILL and waits until the next one starts."""
        process = self.process
        process.kill()
        eventually(lambda: self.process is not process, MIN_WAIT_SECONDS, lambda: self.log[-3000:])

    def end(self) -> None:
        with self._starting:
            self._over = True
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def metrics_address(self) -> tuple[str, int]:
        return "127.0.0.1", self._port

    @property
    def probe_address(self) -> tuple[str, int]:
        return "127.0.0.1", self._probe_port

    def get(self, path: str) -> str:
        """Sends a GET to the operator's HTTP server. Returns the body, or "" without a response with status 200."""
        port = self._port if path == "/metrics" else self._probe_port
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
                return str(answer.read().decode())
        except OSError as error:
            note(f"GET {path} of the operator", error)
            return ""

    def readiness(self) -> str:
        """Returns what /readyz answers, also if the operator isn't ready; or why there is no answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._probe_port}/readyz", timeout=20) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError as error:
            return str(error)

    def is_leader(self) -> bool:
        return "triton_operator_leading 1.0" in self.get("/metrics")

    def writes(self) -> float:
        """Returns the operator's writes to the API server from its metrics, without those of the Lease."""
        series = re.findall(r"triton_operator_api_requests_total\{(.*)\} (\S+)", self.get("/metrics"))
        return sum(
            float(n) for labels, n in series if not re.search('verb="(GET|LIST|WATCH)"|resource="leases"', labels)
        )

    def metric_sum(self, metric: str, **labels: str) -> float:
        """Returns the sum of all series of one of the operator's metrics with these labels."""
        series = re.findall(rf"^{metric}(?:\{{(.*)\}})? (\S+)$", self.get("/metrics"), re.MULTILINE)
        return sum(float(n) for own, n in series if labels.items() <= dict(re.findall(r'(\w+)="([^"]*)"', own)).items())

    def reconciles(self, **labels: str) -> float:
        """Returns the number of reconciles, for example with result="ok"."""
        return self.metric_sum("triton_operator_reconciles_total", **labels)

    def stop(self, how: signal.Signals = signal.SIGTERM, within: float = MIN_WAIT_SECONDS) -> int:
        """Ends the operator with the signal `how`, without a restart, and returns its exit code.

        Returns 0 for one that had lost its Lease and would have been started again.
        """
        with self._starting:
            self._over = True
        if self.exit_codes:
            # One that was started again just now handles no signals yet.
            eventually(
                lambda: self.process.poll() is not None or self.get("/healthz"), MIN_WAIT_SECONDS, self.readiness
            )
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(within)
        return 0 if self.lost_lease and self._restart is not Restart.NEVER else code


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
def running(
    kubeconfig: Path,
    folder: Path,
    *,
    lead: bool = True,
    wait: bool = True,
    restart: Restart = Restart.AFTER_A_LOST_LEASE,
    program: Path | None = None,
    **env: str,
) -> Iterator[Operator]:
    """Runs an operator while the context lasts.

    - `wait`: waits until it is ready and, if `lead`, until it is the leader.
    - `program`: a Python program that runs the operator with other parts; None for the operator's own command.
    """
    port, probe_port = ports.free(2)
    log = folder / f"operator-{port}.log"
    settings = {
        "KUBECONFIG": str(kubeconfig), "TOOLS_IMAGE": TOOLS_IMAGE, "PORT": str(port), "PROBE_PORT": str(probe_port),
        # Each request gets the numbers of its moment.
        "METRICS_SECONDS": "0", "POD_NAME": f"operator-{port}",
        "POD_NAMESPACE": NAMESPACE, "PROGRESS_SECONDS": "0",
        **{k: os.environ[k] for k in ("PATH", "PYTHONPATH") if k in os.environ}, **env,
    }  # fmt: skip
    operator = Operator(settings, port, probe_port, log, restart, program)

    def up() -> bool:
        assert operator.process.poll() is None or operator.lost_lease, operator.log
        return operator.get("/readyz") == "ok" and (operator.is_leader() or not lead)

    try:
        with evidence.on_failure(log.name, evidence.of_file(log)):
            if wait:
                eventually(up, START_SECONDS, lambda: f"/readyz: {operator.readiness()}\n{operator.log}")
            yield operator
    finally:
        operator.end()
