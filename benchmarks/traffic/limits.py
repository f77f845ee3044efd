"""Measures a limit that the Gateway enforces: how exact it is, how soon it is in effect, and what it protects."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from statistics import quantiles
from typing import Any

from support import gateway_cluster
from support.api import Object, condition, eventually
from support.cluster import ROOT, Cluster, Namespace
from support.load import client_pod
from support.thresholds import annotate

_HOST, _NAME = "limited.example.com", "echo"
_SCRIPT = ROOT / "tests/e2e/client/limited.py"
_SECONDS = 20.0
_SETTLED_SECONDS = 3.0
"""A bucket is full at the beginning."""
_TIMES = 3
"""How many times the limit clients send."""
_LIMIT = 60


class Limits:
    """One server behind a Gateway, which executes two requests of 20 ms at a time: 100 a second."""

    def __init__(self, cluster: Cluster, namespace: Namespace, gateway: Object) -> None:
        self._cluster, self._namespace = cluster, namespace
        instances = [{"name": _NAME, "config": {"instance_group": [{"kind": "KIND_CPU", "count": 2}]}}]
        route = {"gateway": {"name": gateway["metadata"]["name"]}, "hostnames": [_HOST]}
        model = namespace.model(_NAME, cluster.image(change="waits"), replicas=1, route=route, models=instances)
        namespace.api.apply(model)
        files = {_SCRIPT.name: _SCRIPT.read_text()}
        namespace.api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "limits"}, "data": files})
        self._hosts = {gateway_cluster.address(namespace, gateway): [_HOST]}
        namespace.api.apply(client_pod("limits", cluster.client_image, ["sleep", "infinity"], self._hosts))
        namespace.wait_until_complete(_NAME)
        namespace.kubectl("wait", "--for=condition=Ready", "pod/limits", "--timeout=60s")
        eventually(lambda: self.send(5, 1)["accepted"], 120, "the route")

    def send(self, rate: float, seconds: float = _SECONDS, over: str = "http,grpc") -> dict[str, Any]:
        command = ["python", f"/client/{_SCRIPT.name}", "send", _HOST, str(rate), str(seconds), "--over", over]
        result: dict[str, Any] = json.loads(self._namespace.kubectl("exec", "limits", "--", *command))
        if result["failed"]:
            _say(f"{result['failed']} failed: {result['failures'][:3]}")
        return result

    def enforce(self, limit: int, part: str) -> None:
        annotate(self._namespace.api, _NAME, **{"max-qps": str(limit), "enforce": "true"})

        def look() -> bool:
            said = condition(self._namespace.api.get("TritonModel", _NAME), "Enforced")
            return (
                said.get("status") == "True"
                and f"above {limit} a second" in said["message"]
                and part in said["message"]
            )

        eventually(look, 60, f"a limit of {limit}")

    def free(self) -> None:
        annotate(self._namespace.api, _NAME, enforce="false")
        eventually(lambda: not condition(self._namespace.api.get("TritonModel", _NAME), "Enforced"), 60, "no limit")
        eventually(lambda: not self.send(2 * _LIMIT, 2)["rejected"], 60, "no limit")

    def rate(self, over: str = "http,grpc") -> float:
        """Returns how many requests a second are accepted, of three times the limit."""
        sent = self.send(_TIMES * _LIMIT, over=over)
        accepted = sum(at >= _SETTLED_SECONDS for at in sent["accepted"]) / (_SECONDS - _SETTLED_SECONDS)
        _say(f"{over}: sent {sent['sent']}, accepted {accepted:.1f}/s of {_LIMIT}, rejected {sent['rejected']}")
        return accepted

    def live_seconds(self) -> Iterator[float]:
        """Yields the seconds from the annotation until an answer of Envoy has the new limit."""
        api = self._namespace.api
        files = {_SCRIPT.name: _SCRIPT.read_text()}
        api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "watch"}, "data": files})
        command = ["python", f"/client/{_SCRIPT.name}", "watch", _HOST]
        api.apply(client_pod("watch", self._cluster.client_image, command, self._hosts))
        try:
            eventually(lambda: self._seen(_LIMIT, 0), 60, "the client")
            for limit in (70, 80, 90, _LIMIT):
                began = time.time()
                annotate(api, _NAME, **{"max-qps": str(limit)})
                seen = eventually(lambda n=limit, at=began: self._seen(n, at), 60, f"the limit {limit}")
                yield seen - began
        finally:
            api.delete("Pod", "watch", gracePeriodSeconds=0)

    def _seen(self, limit: int, after: float) -> float:
        lines = self._namespace.kubectl("logs", "watch", check=False).splitlines()
        changes = (line.split() for line in lines if line.endswith(f" {limit}"))
        return next((float(at) for at, _ in changes if float(at) > after), 0.0)

    def p99(self, rate: float, over: str = "http,grpc") -> float:
        """Returns the 99th percentile of how long accepted requests take, in milliseconds."""
        sent = self.send(rate, over=over)
        settled = [
            ms for at, ms in sorted(zip(sent["accepted"], sent["millis"], strict=True)) if at >= _SETTLED_SECONDS
        ]
        p99 = quantiles(settled, n=100)[98]
        _say(f"{over} {rate:g}/s: {len(settled)} accepted, p50 {quantiles(settled, n=2)[0]:.0f} ms, p99 {p99:.0f} ms")
        return p99

    def wait_for_envoys(self, number: int) -> None:
        gateway_cluster.set_proxies(self._cluster, number)
        eventually(lambda: gateway_cluster.ready_proxies(self._cluster) == number, 120, f"{number} Envoys")


def measure(cluster: Cluster, namespace: Namespace, gateway: Object) -> dict[str, object]:
    """Returns the figures. Envoy Gateway has the rate limit service, and the operator uses it from the middle on."""
    figures: dict[str, object] = {}
    alone, together = "by itself", "over all its proxies"
    bench = Limits(cluster, namespace, gateway)
    bench.enforce(_LIMIT, alone)
    figures["enforced_error_one_proxy"] = _error(bench.rate("http"))
    at_limit, above = bench.p99(_LIMIT, "http"), bench.p99(_TIMES * _LIMIT, "http")
    figures |= {"p99_at_limit_ms": round(at_limit), "protected_p99_ratio": round(above / at_limit, 2)}
    live = list(bench.live_seconds())
    figures |= {"enforce_live_s": round(max(live), 1)}
    bench.wait_for_envoys(2)
    figures["accepted_of_limit_two_proxies_alone"] = round(bench.rate() / _LIMIT, 2)
    bench.wait_for_envoys(1)
    bench.free()
    figures["unprotected_p99_ratio"] = round(bench.p99(_TIMES * _LIMIT, "http") / at_limit, 2)
    gateway_cluster.tell_service(cluster, "true")
    try:
        bench.enforce(_LIMIT, together)
        for number in (1, 2):
            bench.wait_for_envoys(number)
            figures[f"enforced_error_together_{number}"] = _error(bench.rate())
        bench.wait_for_envoys(1)
        for over in ("http", "http,grpc"):
            ratio = round(bench.p99(_TIMES * _LIMIT, over) / at_limit, 2)
            figures[f"protected_p99_ratio_together_{over.replace(',', '_')}"] = ratio
    finally:
        gateway_cluster.tell_service(cluster, "")
    return figures


def _error(accepted: float) -> float:
    return round(abs(accepted - _LIMIT) / _LIMIT, 3)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
