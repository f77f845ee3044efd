"""Measures how long after the begin of a burst of seconds the alert TritonModelQpsPeak fires.

A real Prometheus with the rules and the intervals of TritonModels scrapes pages of made servers. Each TritonModel gets
30 % of its limit, and once, at a random moment, three seconds at five times its limit, evenly on its servers. They
answer up to 1.2 times the limit, so most of the burst waits in their queues. max-qps-peak is 1.2 times max-qps.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from support import gen
from support.live import percentile
from support.machine import machine
from support.prometheus_process import running, serving
from triton_operator.api.thresholds import effective_of
from triton_operator.api.types import TritonModel
from triton_operator.render.facts import Facts
from triton_operator.render.prometheus_rule import prometheus_rule

LIMIT = 100.0
BASE, BURST, CAPACITY, PEAK = 0.3 * LIMIT, 5 * LIMIT, 1.2 * LIMIT, 1.2 * LIMIT
BURST_SECONDS = 3.0
ENTRY = "detection"
_WARM_UP_SECONDS, _SPREAD_SECONDS, _PATIENCE_SECONDS = 60.0, 60.0, 60.0


@dataclass(frozen=True)
class Server:
    """One of `share` servers of a TritonModel whose burst begins at `begin` (seconds of time.monotonic())."""

    begin: float
    share: int
    start: float

    def page(self) -> str:
        """Returns the metrics of now: what has arrived is answered, or waits."""
        now = time.monotonic()
        after = max(0.0, now - self.begin)
        arrived = BASE * (now - self.start) + (BURST - BASE) * min(after, BURST_SECONDS)
        waiting = (BURST - CAPACITY) * min(after, BURST_SECONDS)
        waiting -= (CAPACITY - BASE) * max(0.0, after - BURST_SECONDS)
        waiting = max(0.0, waiting) / self.share
        labels = f'{{model="{ENTRY}",version="1"}}'
        return (
            f"nv_inference_request_success{labels} {int(arrived / self.share - waiting)}\n"
            f"nv_inference_pending_request_count{labels} {int(waiting)}\n"
        )


def groups(name: str, scrape_seconds: int) -> list[dict[str, Any]]:
    """Returns the groups of the rules of a TritonModel."""
    annotations = {"tritonoperator.io/max-qps": f"{LIMIT:g}", "tritonoperator.io/max-qps-peak": f"{PEAK:g}"}
    raw = gen.raw(
        gen.put("metadata.annotations", annotations), name=name, entrypoint=ENTRY,
        monitoring={"scrapeSeconds": scrape_seconds, "evaluationSeconds": scrape_seconds},
    )  # fmt: skip
    facts = Facts("operator:1", "Copy", entrypoint=ENTRY, thresholds=effective_of(raw))
    rule = prometheus_rule(TritonModel.model_validate(raw), facts)
    return [{**group, "name": f"{name}/{group['name']}"} for group in rule["spec"]["groups"]]


def measure(models: int, servers: int, scrape_seconds: int) -> list[float]:
    """Returns the seconds from the begin of each burst that is seen."""
    start = time.monotonic()
    begin = {f"model-{n}": start + _WARM_UP_SECONDS + random.uniform(0, _SPREAD_SECONDS) for n in range(models)}
    pages = {
        f"/{name}/{server}": Server(at, servers, start).page for name, at in begin.items() for server in range(servers)
    }
    seen: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="spike-") as folder, serving(pages) as address:
        configs = [
            {
                "job_name": path,
                "scrape_interval": f"{scrape_seconds}s",
                "scrape_timeout": f"{scrape_seconds}s",
                "metrics_path": path,
                "static_configs": [{
                    "targets": [address],
                    "labels": {"namespace": gen.NAMESPACE, "tritonmodel": path.split("/")[1], "pod": path[1:],
                               "instance": path[1:]},
                }],
            }
            for path in pages
        ]  # fmt: skip
        rules = [group for name in begin for group in groups(name, scrape_seconds)]
        with running(Path(folder), configs, rules, every="") as prometheus:
            while time.monotonic() < max(begin.values()) + _PATIENCE_SECONDS and len(seen) < models:
                alerts = prometheus.ask("query", query='ALERTS{alertname="TritonModelQpsPeak",alertstate="firing"}')
                now = time.monotonic()
                for series in alerts["result"]:
                    name = series["metric"]["tritonmodel"]
                    assert now > begin[name], f"{name}: the alert fires before the burst"
                    seen.setdefault(name, now - begin[name])
                time.sleep(0.2)
    return list(seen.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="spike", description=__doc__)
    parser.add_argument("--models", type=int, default=int(os.environ.get("SIZES", "60")), help="number of bursts")
    models = parser.parse_args().models
    figures: dict[str, Any] = {}
    for servers, scrape_seconds in ((1, 10), (4, 10), (1, 5), (4, 5)):
        took = measure(models, servers, scrape_seconds)
        p50, p99 = median(took), percentile(took, 0.99)
        words = (
            f"seen {len(took)} of {models}, after {p50:.1f} s (median), {p99:.1f} s (P99), {max(took):.1f} s at most"
        )
        print(f"{servers} servers, scrapes every {scrape_seconds} s: {words}", flush=True)
        figures[f"seen_s_{servers}_servers_{scrape_seconds}_s"] = {
            "of": models, "seen": len(took), "p50": round(p50, 1), "p99": round(p99, 1),
        }  # fmt: skip
    print(json.dumps({**figures, "conditions": {"machine": machine(), "burst_s": BURST_SECONDS}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
