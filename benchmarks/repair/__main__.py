"""Measures how long servers with a fault stay in service, with and without the operator's repairs.

Two servers get a steady load over HTTP and gRPC. One of them gets a fault: the process of its model is killed or
stopped, its model answers each request with an error or hangs, or tritonserver exits. The time starts with the fault
and ends with the last request that failed. Without repairs (`repair: Report`, no health request) a fault that lasts is
measured for BASELINE_SECONDS. Then repairs are counted while nothing is wrong with the servers, but a client sends bad
input, models load slowly and are reloaded, and the operator and Prometheus go away: all of them would be false.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any

from hack.world import settings
from support import cluster as clusters
from support.api import condition, eventually
from support.cluster import ROOT, Cluster, Namespace
from support.load import client, load
from support.machine import machine

RATE = float(os.environ.get("RATE", "20"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
BASELINE_SECONDS = float(os.environ.get("BASELINE_SECONDS", "60"))
REST_SECONDS = float(os.environ.get("REST_SECONDS", "600"))
ONLY = os.environ.get("ONLY", "faults,probes,rest").split(",")
SERVER_IMAGE = os.environ.get("SERVER_IMAGE", "")
"""Another server image than the project's, which the cluster's nodes can pull."""
_CALM_SECONDS = 15.0
"""How long no request may fail before a fault is over. Requests take 10 s at most."""
_BUSYBOX = "/.triton-operator/tools/busybox"
_SIGNAL = """for path in /proc/[0-9]*; do
  IFS= read -r line <$path/stat 2>/dev/null || continue
  case $line in *"(triton_python_b)"*) kill -{} ${{path#/proc/}} ;; esac
done
true"""
FAULTS = {
    "killed": ["sh", "-c", _SIGNAL.format("KILL")],
    "stopped": ["sh", "-c", _SIGNAL.format("STOP")],
    "failing": ["touch", "/dev/shm/broken"],
    "hanging": ["touch", "/dev/shm/stuck"],
    "exit": ["sh", "-c", "kill -TERM 1"],
}
_SPEC: dict[str, Any] = {"replicas": 2, "rollout": {"drainSeconds": 1, "exitSeconds": 3}}
_NO_LOSSES = {"drainSeconds": 12, "exitSeconds": 5}
_EXPLICIT = {"modelControl": "explicit", "loadModels": ["echo"]}
WAYS: dict[str, dict[str, Any]] = {
    "repaired": {**_SPEC, "healthRequest": {"file": "echo/health.json", "everySeconds": 5, "timeoutSeconds": 2}},
    "baseline": {**_SPEC, "repair": "Report"},
}

PROBES: dict[str, tuple[str, dict[str, Any]]] = {
    "model": ("breaks", {**_SPEC, "entrypoint": "echo"}),
    "all models": ("breaks", {**_SPEC, "entrypoint": None}),
    "ensemble": ("ensemble", {**_SPEC, "entrypoint": "all"}),
    "health request": ("breaks", WAYS["repaired"]),
}
"""What the readiness probe asks: the model image and the spec."""


@dataclass(frozen=True)
class Fault:
    """One fault. Seconds after it: when the status had it (None: never), and when the last failing request began.

    `share`: failed requests, of those between the fault and the last failure. Clients that wait send fewer.
    """

    noticed_s: float | None
    healthy_s: float
    share: float


def fault(
    cluster: Cluster,
    namespace: Namespace,
    name: str,
    spec: dict[str, Any],
    command: list[str],
    image: str = "breaks",
) -> Fault:
    """Breaks one of two new servers under load, and measures until no request fails any more."""
    server = {"server": {"image": SERVER_IMAGE}} if SERVER_IMAGE else {}
    model = namespace.model(name, cluster.image(change=image), **spec, **server)
    model["spec"] = {field: value for field, value in model["spec"].items() if value is not None}
    namespace.api.apply(model)
    namespace.wait_until_complete(name)
    victim = min(pod["metadata"]["name"] for pod in namespace.pods(name))
    repaired = spec.get("repair") != "Report"
    with load(namespace, name, RATE) as traffic:
        started = time.time()
        # Longer than the watch of processes needs to see the process.
        time.sleep(10)
        began = time.time()
        namespace.kubectl("exec", victim, "-c", "triton", "--", _BUSYBOX, *command, check=False)
        noticed = _noticed(namespace, name, began) if repaired else None
        if repaired:
            namespace.wait_until_complete(name)
            time.sleep(_CALM_SECONDS)
        else:
            time.sleep(max(0.0, began + BASELINE_SECONDS - time.time()))
        seconds = time.time() - started
    failures = [_start(failure, began) - began for failure in traffic.failures()]
    healthy = max(failures, default=0.0)
    namespace.api.delete("TritonModel", name)
    answered = sum(sum(counts["versions"].values()) for counts in traffic.result.values())
    meanwhile = (answered + len(failures)) * healthy / seconds
    return Fault(noticed, healthy, len(failures) / meanwhile if failures else 0.0)


def _noticed(namespace: Namespace, name: str, began: float) -> float:
    """Returns the seconds until a condition has a problem or a repair is in the status."""

    def problem() -> float:
        model = namespace.api.get("TritonModel", name)
        progressing = condition(model, "Progressing")["reason"]
        noticed = progressing not in ("Complete", "RollingOut") or "lastRepair" in model["status"]
        return time.time() - began if noticed else 0.0

    return eventually(problem, 240, every=0.5)


def _start(failure: str, began: float) -> float:
    """Returns when a failed request began: `05:12:07 error after 2.00 s`, of the day of `began`."""
    clock, _, words = failure.partition(" ")
    day = datetime.fromtimestamp(began, UTC).date()
    ended = datetime.combine(day, datetime.strptime(clock, "%H:%M:%S").time(), UTC).timestamp()
    return ended - float(words.rsplit(" ", 2)[1])


def false_repairs(cluster: Cluster, namespace: Namespace) -> Counter[str]:
    """Counts what happens to servers with which nothing is wrong, and the repairs that follow: all would be false.

    Much load and a client that sends only bad input last all the time. The changes of `_changes` take turns.
    """
    name, counts = "rest", Counter[str]()
    spec = {**WAYS["repaired"], "rollout": _NO_LOSSES, "server": _EXPLICIT}
    namespace.deploy(name, cluster.image(change="breaks"), **spec)
    bad_input = ["python", "/client/bad_input.py", name, str(RATE)]
    deadline = time.monotonic() + REST_SECONDS
    with (
        _monitoring(cluster),
        load(namespace, name, 10 * RATE) as traffic,
        client(namespace, "bad-input", [ROOT / "tests/e2e/client/bad_input.py"], bad_input) as answers,
    ):
        for kind, change in itertools.cycle(_changes(cluster, namespace, name)):
            if time.monotonic() > deadline:
                break
            print(f"{datetime.now(UTC):%H:%M:%S} {kind}", file=sys.stderr, flush=True)
            change()
            namespace.wait_until_complete(name, 600)
            counts[kind] += 1
            time.sleep(_CALM_SECONDS)
    status = namespace.wait_until_complete(name)["status"]
    counts["repairs"] = max(len(status.get("evictions", [])), int("lastRepair" in status))
    counts["good requests"] = sum(sum(protocol["versions"].values()) for protocol in traffic.result.values())
    counts["failed good requests"] = len(traffic.failures())
    print("\n".join(traffic.failures()[:200]), file=sys.stderr)
    counts.update({f"bad requests, {code}": number for code, number in answers.items()})
    return counts


def _changes(cluster: Cluster, namespace: Namespace, name: str) -> list[tuple[str, Callable[[], object]]]:
    """Returns what happens in turn to healthy servers: its name, and the function that makes it happen."""

    def load_seconds(seconds: str) -> object:
        environment = [{"name": "LOAD_SECONDS", "value": seconds}]
        return namespace.api.patch("TritonModel", name, {"spec": {"server": {"env": environment}}})

    def restart() -> None:
        cluster.kubectl("-n", "triton-operator", "rollout", "restart", "deployment/triton-operator")
        cluster.kubectl("-n", "triton-operator", "rollout", "status", "deployment/triton-operator")

    return [
        ("rollouts", lambda: load_seconds("0")),
        ("reloads", lambda: _triton(namespace, "reload", name, "echo")),
        ("restarts of the operator", restart),
        ("times without Prometheus", lambda: _run_prometheus(cluster, 0)),
        ("rollouts of a slow model", lambda: load_seconds("45")),
        ("reloads of a slow model", lambda: _triton(namespace, "reload", name, "echo")),
        ("restarts of the operator", restart),
        ("returns of Prometheus", lambda: _run_prometheus(cluster, 1)),
    ]


@contextlib.contextmanager
def _monitoring(cluster: Cluster) -> Iterator[None]:
    """Installs Prometheus, and starts it again at the end."""
    clusters.ensure_monitoring()
    try:
        yield
    finally:
        _run_prometheus(cluster, 1)


def _run_prometheus(cluster: Cluster, replicas: int) -> None:
    cluster.api.patch("Prometheus", "triton", {"spec": {"replicas": replicas}}, namespace="monitoring")


def _triton(namespace: Namespace, *arguments: str) -> None:
    """Runs `kubectl triton` in the namespace."""
    path = f"{ROOT / '.venv' / 'bin'}:{settings.search_path()}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(namespace.cluster.kubeconfig)}
    command = ["kubectl", "triton", *arguments, f"--namespace={namespace.name}"]
    subprocess.run(command, env=environment, check=True, stdout=sys.stderr)


def main() -> int:
    cluster = clusters.ensure()
    figures: dict[str, object] = {}
    results: dict[str, dict[str, list[Fault]]] = {way: {} for way in WAYS}
    with cluster.namespace(f"repair-{uuid.uuid4().hex[:5]}") as namespace:
        for number in range(ROUNDS):
            for kind, command in FAULTS.items() if "faults" in ONLY else ():
                for way, spec in WAYS.items():
                    if way == "baseline" and number:
                        continue
                    result = fault(cluster, namespace, f"{kind}-{way}-{number}", spec, command)
                    results[way].setdefault(kind, []).append(result)
                    print(f"round {number + 1}: {kind}, {way}: {result}", file=sys.stderr, flush=True)
            for probe, (image, spec) in PROBES.items() if "probes" in ONLY else ():
                name = f"{probe.replace(' ', '-')}-{number}"
                result = fault(cluster, namespace, name, spec, FAULTS["killed"], image)
                results.setdefault(f"probe of {probe}", {}).setdefault("killed", []).append(result)
                print(f"round {number + 1}: probe of {probe}: {result}", file=sys.stderr, flush=True)
        rest = false_repairs(cluster, namespace) if REST_SECONDS and "rest" in ONLY else None
        version = cluster.api.request("GET", "/version")["gitVersion"]
    print(f"{'fault':10}{'way':24}  noticed  no failure any more  failed of the requests until then")
    for way, kinds in results.items():
        for kind, faults in kinds.items():
            noticed = _median(faults, lambda f: f.noticed_s)
            healthy, share = _median(faults, lambda f: f.healthy_s), _median(faults, lambda f: f.share)
            lasts = way == "baseline" and (healthy or 0) > BASELINE_SECONDS - _CALM_SECONDS
            end = f"not within {BASELINE_SECONDS:.0f} s" if lasts else f"{healthy} s"
            print(f"{kind:10}{way:24}{noticed!s:>9}  {end:>21}  {share}")
            key = f"{kind}_{way.replace(' ', '_')}"
            figures |= {f"{key}_noticed_s": noticed, f"{key}_healthy_s": healthy, f"{key}_failed_share": share}
    if rest is not None:
        print(
            f"{REST_SECONDS:.0f} s without a fault: " + ", ".join(f"{number} {kind}" for kind, number in rest.items())
        )
    conditions = {
        "machine": machine(),
        "kubernetes": version,
        "operator_image": cluster.operator_image,
        "server_image": SERVER_IMAGE or cluster.server_image,
        "rounds": ROUNDS,
        "requests_per_second": RATE,
        "baseline_s": BASELINE_SECONDS,
        "rest_s": REST_SECONDS,
    }
    print(json.dumps({**figures, "false_repairs": rest and rest["repairs"], "conditions": conditions}))
    return 0


def _median(faults: list[Fault], figure: Callable[[Fault], float | None]) -> float | None:
    values = [value for f in faults if (value := figure(f)) is not None]
    return round(median(values), 2) if values else None


if __name__ == "__main__":
    sys.exit(main())
