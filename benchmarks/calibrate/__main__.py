"""Calibrates models whose capacity is known: a sleep of 20 ms, with one instance, with two, and with batches.

Runs the search of `kubectl triton calibrate` on a real Triton in Docker, with the load generator's image beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubectl_triton.calibrate import load, plot, result
from kubectl_triton.calibrate.search import LATENCY, Goal, Point, SearchResult, Step, run, search
from model_images.support import load_generator, serving
from support.machine import machine

ROOT = Path(__file__).resolve().parents[2]
MODEL = Path(__file__).parent / "models" / "sleep"
IMAGE = "triton-operator/perf-analyzer:dev"
PRECISION = 0.02
"""Finer than the command's default, because the error of the search is what is measured."""


@dataclass(frozen=True)
class Case:
    """A model, and the requests per second that it can process: instances × batch / 20 ms."""

    name: str
    expected: float
    instances: int = 1
    batch: int = 0

    def repository(self, folder: Path) -> Path:
        """Writes the model repository and returns its path."""
        shutil.copytree(MODEL, folder / "sleep")
        tensors = (
            f'{kind} [ {{ name: "{kind.upper()}" data_type: TYPE_INT32 dims: [ 1 ] }} ]' for kind in ("input", "output")
        )
        lines = [
            'name: "sleep"', 'backend: "python"', f"max_batch_size: {self.batch}", *tensors,
            f"instance_group [ {{ count: {self.instances} kind: KIND_CPU }} ]",
            *(["dynamic_batching { }"] if self.batch else []),
        ]  # fmt: skip
        (folder / "sleep" / "config.pbtxt").write_text("\n".join(lines) + "\n")
        folder.chmod(0o755)
        return folder


CASES = [Case("one instance", 50), Case("two instances", 100, instances=2), Case("batches of 8", 400, batch=8)]


def calibrate(case: Case, goal: Goal) -> SearchResult:
    """Returns the outcome of the search on a server with this model."""

    def show(step: Step, point: Point) -> None:
        print(result.progress(step, point, goal), file=sys.stderr, flush=True)

    sent = load.Load("sleep")
    with (
        tempfile.TemporaryDirectory() as name,
        serving(case.repository(Path(name))) as server,
        load_generator(IMAGE, server.container, "--cpus=1") as execute,
    ):
        load.check_inputs(execute(load.config_command(sent), 60), has_file=False)
        single = load.idle(sent, execute).latencies[LATENCY].p50
        print(f"{case.name}: one request at a time takes {plot.milliseconds(single)}", file=sys.stderr)
        return run(search(goal, 0.5 / single), lambda step: load.measure(sent, execute, step), show)


def main() -> int:
    parser = argparse.ArgumentParser(prog="calibrate", description=__doc__)
    parser.add_argument("--p99", type=float, default=float(os.environ.get("P99", "1")), help="target in seconds")
    parser.add_argument("--cases", type=int, default=int(os.environ.get("CASES", str(len(CASES)))))
    options = parser.parse_args()
    subprocess.run(
        ["docker", "build", "-q", "-t", IMAGE, "-f", "perf_analyzer/Dockerfile", "."],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    goal = Goal({LATENCY: options.p99}, precision=PRECISION)
    start = time.monotonic()
    rows: list[dict[str, Any]] = []
    for case in CASES[: options.cases]:
        begin = time.monotonic()
        outcome = calibrate(case, goal)
        assert outcome.rate is not None, f"{case.name}: {outcome.reason}"
        p99 = sorted(p.latency(LATENCY).p99 for p in outcome.confirmations)
        rows.append({
            "case": case.name, "expected": case.expected, "found": round(outcome.rate, 1),
            "error": round(abs(outcome.rate / case.expected - 1), 3), "p99_s": [round(v, 3) for v in p99],
            "measurements": len(outcome.points), "seconds": round(time.monotonic() - begin),
        })  # fmt: skip
    print(f"Capacity in requests/s at p99 of {options.p99:g} s")
    for row in rows:
        print(
            f"  {row['case']:14} expected {row['expected']:5.0f}  found {row['found']:6.1f}  error {row['error']:6.1%} "
            f" p99 {min(row['p99_s']):.2f} to {max(row['p99_s']):.2f} s  {row['measurements']} measurements in "
            f"{row['seconds']} s"
        )
    figures = {
        "error": max(row["error"] for row in rows),
        "seconds": round(time.monotonic() - start),
        "cases": rows,
        "conditions": {"machine": machine(), "p99_s": options.p99, "precision": PRECISION},
    }
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
