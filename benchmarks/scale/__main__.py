"""Measures the operator with 100, 300 and 1000 TritonModels.

It runs a real etcd, kube-apiserver and kube-controller-manager, but no scheduler: pods stay pending, so only the
operator is measured. The operator runs as a separate process with the RBAC of the installation. For comparison a plain
script creates the same children (the floor), with as many writers as the operator has workers. It runs before and after
each round, on a new control plane.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from support import controlplane
from support.machine import machine

from . import report
from .measure import CHURN_PER_SECOND, MANAGER_FLAGS, MISSED_CHANGES, SCRAPE_SECONDS, Figures, Plan, measure
from .world import NAMESPACES


def main() -> int:
    parser = argparse.ArgumentParser(prog="scale", description=__doc__)
    parser.add_argument("--sizes", default=os.environ.get("SIZES", "100,300,1000"), help="TritonModels, ascending")
    parser.add_argument("--rest-seconds", type=float, default=float(os.environ.get("REST_SECONDS", "600")),
                        help="idle time at the largest size; a tenth at the others")  # fmt: skip
    parser.add_argument("--workers", type=int, default=8, help="workers of the operator and writers of the floor")
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS", "3")), help="rounds of creation")
    parser.add_argument("--changes", type=int, default=200, help="sequential changes without other load")
    parser.add_argument("--churn-seconds", type=float, default=30)
    parser.add_argument("--apart", action="store_true", default=os.environ.get("APART") == "1",
                        help="give the API server half of the cores, as on its own node (Linux only)")  # fmt: skip
    parser.add_argument("--markdown", type=Path, help="write the tables to this file")
    options = parser.parse_args()
    if not controlplane.has_controllers():
        print("no kube-controller-manager; set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver and it",
              file=sys.stderr)  # fmt: skip
        return 2
    sizes = sorted(int(size) for size in options.sizes.split(","))
    if sizes[0] < MISSED_CHANGES:
        parser.error(f"--sizes: the fail-over changes {MISSED_CHANGES} TritonModels; use at least {MISSED_CHANGES}")
    if options.apart and (sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2):
        parser.error("--apart needs Linux and at least two cores")
    began = time.monotonic()

    def say(words: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {words}", file=sys.stderr, flush=True)

    measured: list[Figures] = []
    for size in sizes:
        rest = options.rest_seconds if size == sizes[-1] else options.rest_seconds / 10
        plan = Plan(options.workers, options.rounds, rest, options.changes, options.churn_seconds, options.apart)
        measured.append(measure(size, plan, say))
    text = report.tables(measured)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n")
    version = subprocess.run([controlplane.binaries() / "kube-apiserver", "--version"], capture_output=True, text=True)
    conditions = {
        "machine": machine(),
        "kubernetes": version.stdout.split()[-1],
        "sizes": sizes,
        "namespaces": NAMESPACES,
        "workers_and_writers": options.workers,
        "rounds": options.rounds,
        "api_server_apart": options.apart,
        "controller_manager": " ".join(MANAGER_FLAGS),
        "scraped_every_s": SCRAPE_SECONDS,
        "rest_s": options.rest_seconds,
        "changes": options.changes,
        "churn": f"{CHURN_PER_SECOND}/s for {options.churn_seconds:g} s",
        "pods": "one for each TritonModel, never scheduled",
        "prometheus": "only the CRDs",
        "etcd": "without fsync",
        "seconds": round(time.monotonic() - began),
    }
    print(json.dumps({**report.figures(measured[-1]), "conditions": conditions}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
