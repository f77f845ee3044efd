#!/usr/bin/env python3
"""Makes one measurement with perf_analyzer, and prints its result as one line of JSON.

With --rate it sends requests at random times (Poisson), whether or not earlier ones are answered. Without it, it sends
one request after the other. A measurement that fails is a result too: it has `failures` and `error`.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SENT = re.compile(r"Avg send request rate: ([0-9.]+)")
COUNT = re.compile(r"Request count: ([0-9]+)")
ERROR_CHARACTERS = 500
ALIVE_SECONDS = 5
UNANSWERED_SECONDS = 30
"""Time for answers after the last request, besides the length of the measurement."""
NOISE = re.compile(
    r"^(\s*|\*\*\*.*|WARNING.*|\s*(Batch size|Measurement|Sending|Service|Stabilizing|Successfully|Using).*)$"
)


def intervals(rate: float, seconds: float, seed: int) -> list[int]:
    """Returns the microseconds before each request: about `rate` times `seconds` random intervals, at least ten."""
    source = random.Random(seed)  # noqa: S311 - a schedule, no secret
    return [max(1, round(source.expovariate(rate) * 1e6)) for _ in range(max(10, round(rate * seconds)))]


def command(options: argparse.Namespace, folder: Path, times: list[int]) -> list[str]:
    """Returns the command line of perf_analyzer.

    perf_analyzer's own Poisson schedule is the same in every run, so the schedule is a file.
    """
    load = ["--concurrency-range=1", f"--request-count={options.requests}"]
    if times:
        schedule = folder / "intervals"
        schedule.write_text("".join(f"{t}\n" for t in times))
        load = ["--async", f"--request-intervals={schedule}", f"--request-count={len(times)}"]
    return [
        *("perf_analyzer", "-m", options.model, "-u", options.url, "-i", options.protocol),
        *(f"--input-data={options.input_data}", "--percentile=99", "-f", str(folder / "result.csv"), *load),
    ]


def run(arguments: list[str], limit: float) -> tuple[int | None, str]:
    """Returns the exit code and the output; or None instead of the code after the time limit.

    Prints a dot every few seconds, so that no proxy closes the connection.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(arguments, stdout=output, stderr=subprocess.STDOUT)
        end = time.monotonic() + limit
        code = None
        try:
            while code is None and time.monotonic() < end:
                try:
                    code = process.wait(min(ALIVE_SECONDS, max(0.1, end - time.monotonic())))
                except subprocess.TimeoutExpired:
                    print(".", file=sys.stderr, end="", flush=True)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        return code, output.read(1 << 20).decode(errors="replace")


def result(code: int | None, output: str, table: str, expected: int) -> dict[str, object]:
    """Returns the result from perf_analyzer's exit code, output and CSV table. Latencies are in seconds."""
    rows = list(csv.DictReader(table.splitlines()))
    if code == 0 and len(rows) == 1:
        sent, count = SENT.search(output), COUNT.search(output)
        return {
            "requests": int(count[1]) if count else expected,
            "failures": 0,
            "sent": float(sent[1]) if sent else None,
            "p50": float(rows[0]["p50 latency"]) / 1e6,
            "p99": float(rows[0]["p99 latency"]) / 1e6,
        }
    if code is None:
        return {"requests": expected, "failures": 0, "sent": None, "p50": None, "p99": None}
    lines = [line.strip() for line in output.splitlines() if not NOISE.match(line)]
    error = " ".join(lines)[-ERROR_CHARACTERS:] or f"perf_analyzer exited with {code}"
    return {"requests": expected, "failures": 1, "sent": None, "p50": None, "p99": None, "error": error}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--protocol", choices=["http", "grpc"], required=True)
    parser.add_argument("--input-data", default="random")
    parser.add_argument("--rate", type=float, help="requests per second")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--requests", type=int, default=20, help="the number of requests without --rate")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    times = intervals(options.rate, options.seconds, options.seed) if options.rate else []
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        limit = sum(times) / 1e6 + options.seconds + UNANSWERED_SECONDS
        code, output = run(command(options, folder, times), limit)
        table = folder / "result.csv"
        found = result(code, output, table.read_text() if table.exists() else "", len(times) or options.requests)
    print(json.dumps({**found, "took": round(time.monotonic() - start, 3)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
