"""Measures what the rules of many TritonModels cost Prometheus: CPU, memory, and missed evaluations.

Two real Prometheuses scrape the same fleet, three servers for each TritonModel, at the real intervals. One evaluates
the rules of all TritonModels, the other none; the difference is the cost of the rules.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.scale.probe import usage
from support import ports
from support.api import eventually
from support.machine import machine
from support.prometheus_process import Prometheus, running
from triton_operator.api import names
from triton_operator.api.thresholds import effective_of
from triton_operator.api.types import TritonModel
from triton_operator.render.facts import Facts
from triton_operator.render.prometheus_rule import prometheus_rule

from . import pages

SERVERS = 3
WARM_UP_SECONDS = 100
"""The rules' rates are over a minute, and the groups start spread over their interval."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="rules", description=__doc__)
    parser.add_argument("--sizes", default=os.environ.get("SIZES", "200,1000"), help="numbers of TritonModels")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS", "180")), help="per size")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for size in map(int, options.sizes.split(",")):
        measured = measure(size, options.seconds)
        print(f"{size} TritonModels: {measured}", flush=True)
        figures |= {"rules_per_model": measured.pop("rules"), "series_per_model": measured.pop("series")}
        figures |= {f"{name}_at_{size}": value for name, value in measured.items()}
    conditions = {"machine": machine(), "servers_per_model": SERVERS, "seconds": options.seconds}
    print(json.dumps({**figures, "conditions": conditions}))
    return 0


def measure(size: int, seconds: float) -> dict[str, float]:
    """Returns the figures for `size` TritonModels, over `seconds`."""
    groups = [group for number in range(size) for group in rule_groups(number)]
    with tempfile.TemporaryDirectory(prefix="rules-") as folder, serving(size) as configs, contextlib.ExitStack() as s:
        both = []
        for name, evaluated in (("with", groups), ("without", [])):
            (Path(folder) / name).mkdir()
            both.append(s.enter_context(running(Path(folder) / name, configs, evaluated, every="")))
        with_rules, without = both
        time.sleep(WARM_UP_SECONDS)
        began, before = time.monotonic(), [cpu(instance) for instance in both]
        time.sleep(seconds)
        used = [
            (cpu(instance) - start) / (time.monotonic() - began) for instance, start in zip(both, before, strict=True)
        ]
        own_metrics = own(with_rules)
        assert own_metrics["prometheus_rule_evaluation_failures_total"] == 0
        assert with_rules.value("count(up == 1)") == size * SERVERS + 2, "not every target is up"
        assert not with_rules.ask("query", query="ALERTS")["result"], "an alert is active"
        recorded = with_rules.value('count({__name__=~"triton(model)?:.*"})') or 0
        return {
            "rules": len([rule for group in rule_groups(0) for rule in group["rules"]]),
            "series": round(recorded / size, 1),
            "cores": round(used[0] - used[1], 3),
            "cores_of_scrapes": round(used[1], 3),
            "rules_mib": round(with_rules.rss_mib - without.rss_mib),
            "missed": own_metrics["prometheus_rule_group_iterations_missed_total"],
        }


def rule_groups(number: int) -> list[dict[str, Any]]:
    """Returns the groups of a TritonModel's PrometheusRule, with names as prometheus-operator makes them unique."""
    raw = pages.model(number)
    facts = Facts("operator:1", "Copy", entrypoint=pages.ENTRY, thresholds=effective_of(raw))
    rule = prometheus_rule(TritonModel.model_validate(raw), facts)
    return [{**group, "name": f"{rule['metadata']['namespace']}/{group['name']}"} for group in rule["spec"]["groups"]]


@contextlib.contextmanager
def serving(size: int) -> Iterator[list[dict[str, Any]]]:
    """Serves the pages of `size` TritonModels, and yields the scrape configuration."""
    (port,) = ports.free()
    address = f"127.0.0.1:{port}"
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.rules.pages", str(size), str(port)])
    try:
        eventually(lambda: reachable(f"http://{address}/operator"), 60, "no pages")
        yield [scrape_of_operator(port), scrape_of_servers(size, port)]
    finally:
        process.kill()
        process.wait()


def scrape_of_operator(port: int) -> dict[str, Any]:
    targets = [f"127.200.0.{replica}:{port}" for replica in (1, 2)]
    return {
        "job_name": names.METRICS_JOB,
        "honor_labels": True,
        "scrape_interval": "5s",
        "scrape_timeout": "4s",
        "metrics_path": "/operator",
        "static_configs": [{"targets": targets}],
    }


def scrape_of_servers(size: int, port: int) -> dict[str, Any]:
    targets = []
    for number in range(size):
        metadata = pages.model(number)["metadata"]
        assert isinstance(metadata, dict)
        for server in range(SERVERS):
            host = f"127.{100 + server}.{number // 250}.{number % 250 + 1}"
            labels = {"namespace": metadata["namespace"], "tritonmodel": metadata["name"], "pod": f"pod-{server}"}
            targets.append({"targets": [f"{host}:{port}"], "labels": labels})
    return {
        "job_name": "servers",
        "scrape_interval": "10s",
        "scrape_timeout": "10s",
        "metrics_path": "/server",
        "static_configs": targets,
    }


def reachable(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
        return True
    return False


def own(prometheus: Prometheus) -> Counter[str]:
    """Returns the sum of each of Prometheus' own metrics."""
    totals: Counter[str] = Counter()
    for name, amount in re.findall(r"(?m)^(\w+)(?:{.*})? (\S+)$", prometheus.metrics()):
        totals[name] += float(amount)  # type: ignore[assignment]
    return totals


def cpu(prometheus: Prometheus) -> float:
    """Returns the CPU seconds since the process started."""
    return usage(prometheus.pid).cpu_s


if __name__ == "__main__":
    sys.exit(main())
