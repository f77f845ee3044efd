"""Measures what a Gateway does with requests, and how soon the gate finds a bad canary, on kind with Envoy Gateway.

Clients send a steady load over HTTP and gRPC through one Gateway. `weight_error` compares the share of a canary with
its weight. Then canaries come and go under the load, one is promoted, and the operator is killed: no request may fail.
Canaries that fail, or are slower, are measured from their first request until the route sends them none. Equal servers
are compared in a simulation (equal.py). Limits are measured in limits.py.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import uuid
from collections.abc import Callable
from statistics import median
from typing import Any

from support import cluster as clusters
from support import gateway_cluster
from support.api import Object, condition, eventually
from support.cluster import ROOT, Cluster, Namespace
from support.load import Load, load, sleeping_client
from support.machine import machine

from . import equal, limits

HOURS = float(os.environ.get("HOURS", "100"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
RATE = float(os.environ.get("RATE", "40"))
SECONDS = float(os.environ.get("SECONDS_EACH", "30"))
ONLY = os.environ.get("ONLY", "equal,limits,spread,shares,changes,fails,slower").split(",")
WEIGHTS = (0.05, 0.1, 0.5, 0.9)
"""Weights of the canary in the simulation."""
_HOST = "echo.example.com"
_GATEWAY: Object = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "Gateway",
    "metadata": {"name": "models"},
    "spec": {
        "gatewayClassName": "envoy",
        "listeners": [
            {"name": name, "port": port, "protocol": "HTTP"} for name, port in (("http", 8000), ("grpc", 8001))
        ],
    },
}
_ROUTE: Object = {"gateway": {"name": "models"}, "hostnames": [_HOST]}
_NAME = "echo"
_ROUTED = ROOT / "tests/e2e/client/routed.py"
_INSTANCES: list[Object] = [
    {"name": _NAME, "config": {"instance_group": [{"kind": "KIND_CPU", "count": 4}]}},
]
"""Enough that no request waits for another one, because the clients send several at one moment."""
_LIMIT_SECONDS = 300


class Bench:
    """A TritonModel of four servers behind a Gateway, whose requests take 20 ms."""

    def __init__(self, cluster: Cluster, namespace: Namespace) -> None:
        self.cluster, self.namespace = cluster, namespace
        image = cluster.image(change="waits")
        namespace.api.apply(namespace.model(_NAME, image, replicas=4, route=_ROUTE, models=_INSTANCES))
        self.hosts = {gateway_cluster.address(namespace, _GATEWAY): [_HOST]}
        self.wait_for("Routed", "Accepted")

    def load(self, name: str) -> Any:
        return load(self.namespace, _HOST, RATE, name, self.hosts)

    def answered(self) -> dict[str, int]:
        """Returns how many requests each server has answered."""
        api, counts = self.namespace.api, {}
        for pod in self.namespace.pods(_NAME):
            name = pod["metadata"]["name"]
            path = f"{api.path('Pod', name + ':8000')}/proxy/v2/models/{_NAME}/stats"
            [stats] = api.request("GET", path)["model_stats"]
            counts[name] = int(stats["inference_stats"]["success"]["count"])
        return counts

    def change(self, canary: Object | None) -> None:
        self.namespace.api.patch("TritonModel", _NAME, {"spec": {"canary": canary}})

    def wait_for(self, kind: str, reason: str) -> Object:
        def look() -> Object | None:
            found = condition(self.namespace.api.get("TritonModel", _NAME), kind)
            return found if found.get("reason") == reason else None

        return eventually(look, _LIMIT_SECONDS, f"{kind}: {reason}")

    def wait_until_complete(self) -> None:
        self.namespace.wait_until_complete(_NAME)

    def weight(self) -> int | None:
        """Returns the canary's weight in the route; None without one."""
        rules = self.namespace.api.get("HTTPRoute", _NAME)["spec"]["rules"]
        return next((b["weight"] for b in rules[0]["backendRefs"] if b["name"] == f"{_NAME}-canary"), None)

    def canary(self, change: str, weight: int, **fields: Any) -> Object:
        return {"modelImage": {"reference": self.cluster.image(change=change)}, "weight": weight, **fields}


def shares(bench: Bench) -> dict[str, float]:
    """Measures the share of a canary for three weights, and the bound that chance gives (4 σ)."""
    errors: dict[str, float] = {}
    for weight in (5, 20, 50):
        bench.change(bench.canary("v1", weight))
        bench.wait_for("Canary", "Weighted")
        bench.wait_until_complete()
        with bench.load(f"share-{weight}") as traffic:
            time.sleep(SECONDS)
        counts = _versions(traffic)
        total, share = sum(counts.values()), weight / 100
        error, bound = abs(counts.get("v1", 0) / total - share), 4 * math.sqrt(share * (1 - share) / total)
        _say(f"weight {weight} %: {counts}, error {error:.4f}, bound {bound:.4f}")
        errors |= {f"weight_error_{weight}": round(error, 4), f"weight_bound_{weight}": round(bound, 4)}
    bench.change(None)
    bench.wait_until_complete()
    return errors


def spread(bench: Bench) -> float:
    """Returns the largest share of one channel's gRPC requests that a server gets, of four."""
    namespace, number = bench.namespace, 400
    before = bench.answered()
    command = ["python", f"/client/{_ROUTED.name}", _HOST, str(number)]
    with sleeping_client(namespace, "spread", [_ROUTED], bench.hosts):
        namespace.kubectl("exec", "spread", "--", *command)
    counts = [count - before[pod] for pod, count in bench.answered().items()]
    _say(f"spread: {sorted(counts)}")
    return max(counts) / sum(counts)


def changes(bench: Bench) -> int:
    """Returns the failed requests while canaries come, go step by step, end and are promoted, without an operator."""
    gate = {"stepSeconds": 10, "minRequests": 20}
    with bench.load("changes") as traffic:
        for _ in range(ROUNDS):
            bench.change(bench.canary("v1", 50, steps=[10, 30], gate=gate))
            eventually(lambda: bench.weight() == 30, _LIMIT_SECONDS, "the second step")
            bench.cluster.kill_leader()
            eventually(lambda: bench.weight() == 50, _LIMIT_SECONDS, "the last step")
            bench.change(None)
            bench.wait_until_complete()
        image = bench.cluster.image(change="v2")
        bench.change(bench.canary("v2", 50))
        bench.wait_for("Canary", "Weighted")
        patch = {"spec": {"modelImage": {"reference": image}, "canary": None}}
        bench.namespace.api.patch("TritonModel", _NAME, patch)
        bench.wait_until_complete()
        former = {"spec": {"modelImage": {"reference": bench.cluster.image(change="waits")}}}
        bench.namespace.api.patch("TritonModel", _NAME, former)
        bench.wait_until_complete()
    for failure in traffic.failures():
        _say(failure)
    _say(f"changes: {_versions(traffic)}, {len(traffic.failures())} failed")
    return len(traffic.failures())


def seen(bench: Bench, change: str, weight: int = 20) -> float:
    """Returns the seconds from the first request of a bad canary until the route sends it none."""
    with bench.load(f"seen-{change}") as traffic:
        bench.change(bench.canary(change, weight))
        began = _when(lambda: (bench.weight() or 0) > 0)
        ended = _when(lambda: bench.weight() == 0)
        message = bench.wait_for("Canary", "CanaryWorse")["message"]
    _say(f"{change}: {ended - began:.1f} s; {message}; {len(traffic.failures())} failed requests")
    bench.change(None)
    bench.wait_until_complete()
    return ended - began


def _when(there: Callable[[], bool]) -> float:
    eventually(there, _LIMIT_SECONDS, "a weight", every=0.1)
    return time.monotonic()


def _versions(traffic: Load) -> dict[str, int]:
    counts: dict[str, int] = {}
    for protocol in traffic.result.values():
        for version, count in protocol["versions"].items():
            counts[version] = counts.get(version, 0) + count
    return counts


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    figures: dict[str, object] = {}
    if "equal" in ONLY:
        found = [equal.simulate(weight, HOURS / len(WEIGHTS), seed) for seed, weight in enumerate(WEIGHTS)]
        _say(f"equal: {dict(zip(WEIGHTS, found, strict=True))}")
        figures |= {"false_aborts": sum(r.false for r in found), "rounds": sum(r.all for r in found)}
        figures["doubtful_rounds"] = sum(r.doubtful for r in found)
    conditions: dict[str, object] = {"hours": HOURS, "rounds": ROUNDS, "requests_per_second": RATE}
    if {*ONLY} - {"equal"}:
        cluster = clusters.ensure()
        if "limits" in ONLY:
            name = f"limits-{uuid.uuid4().hex[:5]}"
            with cluster.namespace(name) as namespace, gateway_cluster.installed(cluster, counts=True):
                figures |= limits.measure(cluster, namespace, _GATEWAY)
    if {*ONLY} - {"equal", "limits"}:
        with cluster.namespace(f"traffic-{uuid.uuid4().hex[:5]}") as namespace, gateway_cluster.installed(cluster):
            bench = Bench(cluster, namespace)
            bench.wait_until_complete()
            if "spread" in ONLY:
                figures["grpc_spread"] = round(spread(bench), 3)
            if "shares" in ONLY:
                figures |= shares(bench)
            if "changes" in ONLY:
                figures["failed_requests"] = changes(bench)
            for change, key in (("fails", "bad_canary_seen_s"), ("slower", "slow_canary_seen_s")):
                if change in ONLY:
                    times = [seen(bench, change) for _ in range(ROUNDS)]
                    figures |= {key: round(median(times), 1), f"{key[:-2]}_most_s": round(max(times), 1)}
    if {*ONLY} - {"equal"}:
        version = cluster.api.request("GET", "/version")["gitVersion"]
        conditions |= {"machine": machine(), "kubernetes": version, "operator_image": cluster.operator_image}
    for name, figure in figures.items():
        print(f"{name:24} {figure}")
    print(json.dumps({**figures, "conditions": conditions}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
