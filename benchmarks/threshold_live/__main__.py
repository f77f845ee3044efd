"""Measures the time until a changed threshold is live, by the operator's metric and by the PrometheusRule alone.

Each change is a `kubectl annotate` on a served TritonModel. The time starts with kubectl and ends when Prometheus'
`tritonmodel:threshold:effective` has the new value. For every fourth change it also measures the time until the
fallback value in the PrometheusRule arrives (`tritonmodel:threshold:fallback`). Before each change is a random pause.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import uuid
from statistics import median

from support import cluster as clusters
from support.live import CYCLE_SECONDS, SPEC, Change, Subject, pause, percentile, restarts
from support.machine import machine
from support.prometheus import Monitoring

RULE_EVERY = 4


def measure(subject: Subject, runs: int) -> list[Change]:
    """Makes `runs` changes, one after the other, and returns them."""
    changes = []
    for number in range(1, runs + 1):
        rule = number % RULE_EVERY == 0
        pause(rule)
        changes.append(subject.change(rule))
        print(f"run {number}/{runs}: {summary(changes[-1])}", file=sys.stderr, flush=True)
    return changes


def summary(change: Change) -> str:
    rule = "" if change.rule_s is None else f", in the rule after {change.rule_s:.1f} s"
    return f"{change.old:g} → {change.new:g} after {change.live_s:.1f} s{rule}"


def line(words: str, seconds: list[float]) -> str:
    p50, p99 = median(seconds), percentile(seconds, 0.99)
    spread = f"{p50:6.1f}  {p99:6.1f}   {min(seconds):.1f} to {max(seconds):.1f}"
    return f"  {words:34}{len(seconds):4}  {spread}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="threshold_live", description=__doc__)
    parser.add_argument("--runs", type=int, default=int(os.environ.get("RUNS", "20")), help="number of changes")
    runs = max(RULE_EVERY, parser.parse_args().runs)
    cluster = clusters.ensure()
    clusters.ensure_monitoring()
    monitoring = Monitoring(cluster)
    with cluster.namespace(f"threshold-live-{uuid.uuid4().hex[:5]}") as namespace:
        subject = Subject(monitoring, namespace, "echo")
        namespace.deploy("echo", cluster.image("echo", "v1"), **SPEC)
        subject.annotate("tritonoperator.io/max-qps=1000")
        subject.wait_for_metrics()
        before = subject.lives()
        changes = measure(subject, runs)
        restarted = restarts(before, subject.lives())
        version = cluster.api.request("GET", "/version")["gitVersion"]

    live = [c.live_s for c in changes]
    by_rule = [c.rule_s for c in changes if c.rule_s is not None]
    print(f"Seconds from kubectl annotate until …{'':4}n     P50     P99   range")
    print(line("the threshold is live", live))
    print(line("Prometheus loads the changed rule", by_rule))
    print(f"Restarts of servers: {restarted}")
    figures = {
        "p50_s": round(median(live), 2),
        "p99_s": round(percentile(live, 0.99), 2),
        "rule_path_p50_s": round(median(by_rule), 2),
        "speedup": round(median(by_rule) / median(live), 2),
        "restarts": restarted,
        "conditions": {
            "machine": machine(),
            "kubernetes": version,
            "node_image": os.environ["KIND_NODE_IMAGE"],
            "operator_image": cluster.operator_image,
            "server_image": cluster.server_image,
            "scrape_and_evaluation_s": CYCLE_SECONDS,
            "operator_replicas": len(
                cluster.api.list("Pod", "app.kubernetes.io/name=triton-operator", "triton-operator")
            ),
            "changes": runs,
            "by_the_rule": len(by_rule),
            "clock": "from the start of kubectl until an instant query of Prometheus, every 0.1 s, returns the value",
        },
    }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
