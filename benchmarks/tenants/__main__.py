"""Measures what one hostile tenant costs the other tenants, the operator and Prometheus.

Runs a real etcd and kube-apiserver with the policies of the installation, the operator as a process with the rights
and the memory limit of the installation, and two real Prometheuses. The attack is a separate process. Windows without
and with the attack alternate. In each window, the other tenants create and change TritonModels, one at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.scale.probe import usage
from support import controlplane, operator_process, ports
from support.api import Api, eventually
from support.controlplane import ROOT, ControlPlane
from support.costs import cost, many
from support.live import percentile
from support.machine import machine
from support.people import apply_folder, bind, bind_editor

from . import archive, elsewhere, limited, polls, scraped
from .attack import NAMESPACE
from .others import STEADY, Latencies, OtherTenants

TENANT = "tenant"
Say = Callable[[str], None]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tenants", description=__doc__)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS", "600")),
                        help="seconds under attack; the benchmark runs as long without")  # fmt: skip
    parser.add_argument("--window", type=float, default=float(os.environ.get("WINDOW", "60")), help="seconds of each")
    parser.add_argument("--models", type=int, default=int(os.environ.get("MODELS", "60")), help="hostile TritonModels")
    parser.add_argument("--patches", type=float, default=float(os.environ.get("PATCHES", "20")), help="a second")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", "0")) or random.randrange(1, 10**6))
    options = parser.parse_args()
    if not 1 <= options.models <= 250:
        parser.error("--models: between 1 and 250")
    began = time.monotonic()

    def say(words: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {words}", file=sys.stderr, flush=True)

    say(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="tenants-") as folder, control_plane() as plane:
        figures = measure(plane, Path(folder), options, say)
    conditions = {
        "machine": machine(),
        "kubernetes": version(),
        "seconds_under_attack": options.seconds,
        "window_s": options.window,
        "hostile_models": options.models,
        "patches_per_s": options.patches,
        "others_models": STEADY,
        "operator_limit_mib": limited.limit_mib(),
        "prometheus_ended_above_mib": scraped.MAX_MIB,
        "seed": options.seed,
        "seconds": round(time.monotonic() - began),
    }
    print(json.dumps({**figures, "conditions": conditions}))
    return 0


@contextlib.contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """Runs a control plane without controllers.

    Controllers would reconcile the tenant's Deployments on the cores that the operator uses.
    """
    with controlplane.running(users=[TENANT]) as plane:
        plane.install_crds()
        plane.install_monitoring()
        plane.install_keda()
        plane.install_routes()
        operator_process.install(plane)
        for folder in ("rbac", "policies"):
            apply_folder(plane, ROOT / "manifests" / folder)
        plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        bind_editor(plane, NAMESPACE, TENANT)
        bind(plane, NAMESPACE, TENANT, "ClusterRole", "tritonmodel-developer")
        yield plane


class Helper:
    """A process of this benchmark that reads one command per line, and would run on another machine."""

    def __init__(self, module: str, *arguments: object) -> None:
        command = [*elsewhere.COMMAND, sys.executable, "-m", f"benchmarks.tenants.{module}"]
        self._name = module
        self._process = subprocess.Popen(
            [*command, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, line: str) -> str:
        """Sends a command and returns the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.read()

    def read(self) -> str:
        """Returns the next line that the process prints."""
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        assert answer, f"{self._name} has ended"
        return answer

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(plane: ControlPlane, folder: Path, options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Runs all windows and prints the table; returns the figures of the last line."""
    archive.write(folder / "evil.tar")
    kubeconfig = plane.kubeconfig_of(operator_process.NAMESPACE, operator_process.NAME)
    others = OtherTenants(plane.api)
    quiet, noisy, checked = Latencies(), Latencies(), list[archive.Checked]()
    with contextlib.ExitStack() as stack:
        # In a cluster the tenant's servers and clients run on other machines.
        servers = Helper("servers", options.models)
        stack.callback(servers.close)
        attacker = Helper(
            "attack", plane.kubeconfig_of_user(TENANT), plane.kubeconfig, servers.read(), options.models,
            options.patches, options.seed,
        )  # fmt: skip
        stack.callback(attacker.close)
        # The default of the installation; tests use 0.
        hostile_address = f"127.0.0.1:{ports.free()[0]}"
        operator = stack.enter_context(
            limited.running(kubeconfig, folder, PROGRESS_SECONDS="5", PROMETHEUS_URL=f"http://{hostile_address}")
        )
        eventually(lambda: operator.operator.is_leader(), 60, lambda: operator.operator.log)
        others.with_transition_times()
        others.work(3)  # the first requests are slower
        watched: scraped.Scraped | None = None
        for _ in range(max(1, round(options.seconds / options.window))):
            quiet += others.work(options.window)
            attacker.send("{}:{}".format(*operator.operator.metrics_address))
            for helper in (servers, attacker):
                helper.send("on")
            if watched is None:
                page = lambda: operator.operator.get("/metrics")  # noqa: E731
                watched = stack.enter_context(
                    scraped.scraping(plane.api, options.models, folder, page, hostile_address)
                )
            pids = {
                **{name: program.process.pid for name, program in plane.programs.items()},
                "operator": operator.operator.process.pid,
                "attack": attacker.pid,
                "servers": servers.pid,
            }
            cores = Cores(pids)
            with archive.checking(folder / "evil.tar", checked):
                noisy += others.work(options.window)
                used = cores.used()
            events = _events(plane.api)
            for helper in (attacker, servers):
                helper.send("off")
            say(
                f"change to Deployment: {summary(quiet.change)} without, {summary(noisy.change)} with; operator "
                f"{operator.peak_mib:.0f} MiB, {operator.restarts} restarts; Prometheus "
                f"{' and '.join(f'{mib:.0f}' for mib in watched.peaks_mib)} MiB; "
                f"at most {events} Events of one TritonModel; "
                f"cores {used}"
            )
            eventually(lambda: operator.operator.metric_sum("triton_operator_queue_depth") == 0, 120, "an empty queue")
            time.sleep(2)
        counts: dict[str, int] = json.loads(attacker.send("counts"))
        figures = {
            "others_p99_ratio": ratio(noisy.change, quiet.change, 0.99),
            "operator_rss_mib": round(operator.peak_mib),
            "operator_restarts": operator.restarts,
            "prometheus_rss_ratio": round(watched.ratio, 2) if watched else None,
            "others_p50_ratio": ratio(noisy.change, quiet.change, 0.5),
            "others_create_p99_ratio": ratio(noisy.create, quiet.create, 0.99),
            "others_create_p50_ratio": ratio(noisy.create, quiet.create, 0.5),
            "api_server_p99_ratio": ratio(noisy.api, quiet.api, 0.99),
            "api_server_p50_ratio": ratio(noisy.api, quiet.api, 0.5),
            "api_cpu_ratio": api_cpu_ratio(plane),
            "samples": [len(quiet.change), len(noisy.change)],
            "cores": used,
            "events_of_one_model": events,
            "requests_to_a_rogue_prometheus": int(servers.send("counts")),
            "polls": polls.all_attacks(min(options.window, 20.0), say),
            "validate_rss_mib": round(max((c.rss_mib for c in checked), default=0)),
            "validate_seconds": round(max((c.seconds for c in checked), default=0), 1),
            "tracebacks": operator.operator.log.count("Traceback"),
        }
    rows = [("time of other tenants for", "without attack", "under attack")]
    for label, name in (
        ("change to Deployment", "change"), ("create to Deployment", "create"), ("a request to the API server", "api"),
    ):  # fmt: skip
        rows += [(label, summary(getattr(quiet, name)), summary(getattr(noisy, name)))]
    print("\n".join(f"{a:<30} {b:<40} {c}" for a, b, c in rows))
    for name, count in sorted(counts.items()):
        print(f"  {name}: {count}")
    return figures


def api_cpu_ratio(guarded: ControlPlane) -> float:
    """Returns the API server's CPU time for a patch with 16,000 annotations, divided by the same without policies."""
    with controlplane.running() as plain:
        plain.install_crds()
        with_policies, without = (cost(plane, "costs", many("annotations")) for plane in (guarded, plain))
    return round(with_policies / without, 2)


class Cores:
    """Measures the CPU time of processes, from the construction on."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids, self._began = pids, time.monotonic()
        self._before = {name: usage(pid).cpu_s for name, pid in pids.items()}

    def used(self) -> dict[str, float]:
        """Returns how many cores each process used on average. Ended processes are left out."""
        seconds, cores = time.monotonic() - self._began, dict[str, float]()
        for name, pid in self._pids.items():
            with contextlib.suppress(OSError):
                cores[name] = round((usage(pid).cpu_s - self._before[name]) / seconds, 2)
        return cores


def _events(api: Api) -> int:
    """Returns the number of Events about the TritonModel that has the most."""
    events = api.request("GET", f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
    return max(Counter(event["regarding"]["name"] for event in events).values(), default=0)


def ratio(noisy: list[float], quiet: list[float], part: float) -> float:
    return round(percentile(noisy, part) / percentile(quiet, part), 2)


def summary(seconds: list[float]) -> str:
    p50, p99 = 1000 * median(seconds), 1000 * percentile(seconds, 0.99)
    return f"P50 {p50:.0f} ms, P99 {p99:.0f} ms of {len(seconds)}"


def version() -> str:
    command = [controlplane.binaries() / "kube-apiserver", "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]


if __name__ == "__main__":
    sys.exit(main())
