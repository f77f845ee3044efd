#!/usr/bin/env python3
"""Makes one measurement with perf_analyzer, and prints its result as one line of JSON.

With --rate it sends requests at random times (Poisson), whether or not earlier ones are answered. Without it, it sends
one request after the other. A measurement that fails is a result too: it has `failures` and `error`.

With --streaming, a request has several responses. Their times come from perf_analyzer's export of its profile.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SENT = re.compile(r"Avg send request rate: ([0-9.]+)")
FAILED = re.compile(r"Failed to retrieve results|had error")
COUNT = re.compile(r"Request count: ([0-9]+)")
ERROR_CHARACTERS = 500
ALIVE_SECONDS = 5
TABLE, EXPORT = "result.csv", "profile.json"
UNANSWERED_SECONDS = 30
"""Time for answers after the last request, besides the length of the measurement."""
NOISE = re.compile(
    r"^(\s*|\*\*\*.*|WARNING.*|\s*(Batch size|Detected decoupled|Measurement|Request concurrency|Sending|Service|"
    r"Stabilizing|Successfully|Using).*)$"
)


def intervals(rate: float, seconds: float, seed: int) -> list[int]:
    """Returns the microseconds before each request: about `rate` times `seconds` random intervals, at least ten.

    Their mean is that of the rate. Otherwise 500 requests would have another rate than the one to measure, by 4 %.
    """
    source = random.Random(seed)  # noqa: S311 - a schedule, no secret
    times = [source.expovariate(1) for _ in range(max(10, round(rate * seconds)))]
    scale = 1e6 * len(times) / rate / sum(times)
    return [max(1, round(time * scale)) for time in times]


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
        *(f"--input-data={options.input_data}", "--percentile=99", "-f", str(folder / TABLE), *load),
        *(["--streaming", f"--profile-export-file={folder / EXPORT}"] if options.streaming else []),
    ]


def run(arguments: list[str], limit: float) -> tuple[int | None, str]:
    """Returns the exit code and the output; or None instead of the code after the time limit, in seconds.

    After a failed request the limit is UNANSWERED_SECONDS, because perf_analyzer doesn't end after the error of a
    stream that the server ends with one more, empty response. Prints a dot every few seconds, so that no proxy closes
    the connection.
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
                    if FAILED.search(text(output.fileno())):
                        end = min(end, time.monotonic() + UNANSWERED_SECONDS)
        finally:
            process.kill()
            process.wait()
        return code, text(output.fileno())


def text(file: int) -> str:
    """Returns the content of an open file, to which another process may write, without a change of its position."""
    return os.pread(file, 1 << 20, 0).decode(errors="replace")


def of_table(table: str, output: str) -> dict[str, Any] | None:
    """Returns what perf_analyzer's CSV table and output say about requests with one response; None without a result."""
    rows = list(csv.DictReader(table.splitlines()))
    if len(rows) != 1:
        return None
    count = COUNT.search(output)
    latency = {name: float(rows[0][f"{name} latency"]) / 1e6 for name in ("p50", "p99")}
    return {"latencies": {"latency": latency}, **({"requests": int(count[1])} if count else {})}


def of_export(export: str) -> dict[str, Any] | None:
    """Returns what perf_analyzer's export of its profile says about streams; None without a result.

    `ttft` is the time to the first response, `tpot` the mean time between the later ones of a request, `latency` the
    time to the last one. A request with one response has no `tpot`. `responses` counts those of all requests.
    """
    if not export:
        return None
    requests = json.loads(export)["experiments"][0]["requests"]
    times = [[t / 1e9 for t in (request["timestamp"], *responses(request))] for request in requests]
    answered = [each for each in times if len(each) > 1]
    kinds = {
        "latency": [each[-1] - each[0] for each in answered],
        "ttft": [each[1] - each[0] for each in answered],
        "tpot": [(each[-1] - each[1]) / (len(each) - 2) for each in answered if len(each) > 2],
    }
    empty = len(times) - len(answered)
    return {
        "requests": len(times),
        "failures": empty,
        "responses": sum(len(each) - 1 for each in times),
        "latencies": {kind: quantiles(values) for kind, values in kinds.items() if values},
        **({"error": f"{empty} requests ended without a response"} if empty else {}),
    }


def responses(request: dict[str, Any]) -> list[int]:
    """Returns when the responses of an exported request came, in nanoseconds, without an empty one that ends it."""
    times: list[int] = request["response_timestamps"]
    outputs = request["response_outputs"]
    ends_empty = bool(outputs) and all(value == "" for value in outputs[-1].values())
    return times[:-1] if ends_empty else times


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Returns P50 and P99 of at least one value: the smallest one that this part of the values doesn't exceed."""
    ordered = sorted(values)
    return {f"p{part}": round(ordered[math.ceil(part / 100 * len(ordered)) - 1], 6) for part in (50, 99)}


def result(code: int | None, output: str, found: dict[str, Any] | None, expected: int) -> dict[str, Any]:
    """Returns the result from perf_analyzer's exit code and output, and what its file says. Times are in seconds."""
    nothing = {"requests": expected, "failures": 0, "sent": None, "latencies": {}}
    if code == 0 and found:
        sent = SENT.search(output)
        return {**nothing, "sent": float(sent[1]) if sent else None, **found}
    if code is None and not FAILED.search(output):
        return nothing
    lines = [line.strip() for line in output.splitlines() if not NOISE.match(line)]
    error = " ".join(lines)[-ERROR_CHARACTERS:] or f"perf_analyzer exited with {code}"
    return {**nothing, "failures": 1, "error": error}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--protocol", choices=["http", "grpc"], required=True)
    parser.add_argument("--input-data", default="random")
    parser.add_argument("--rate", type=float, help="requests per second")
    parser.add_argument("--streaming", action="store_true", help="requests have several responses; needs grpc")
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
        table, export = (file.read_text() if file.exists() else "" for file in (folder / TABLE, folder / EXPORT))
        found = of_export(export) if options.streaming else of_table(table, output)
        answer = result(code, output, found, len(times) or options.requests)
    print(json.dumps({**answer, "took": round(time.monotonic() - start, 3)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
