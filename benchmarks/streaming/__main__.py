"""Measures a model that streams, on kind: its times in Prometheus, limits and scaling by tokens, ends of streams.

The model is the sample `language` with a capacity that is known. Half of all streams use HTTP, half gRPC.

- latencies: the quantiles of the time to the first token and of the whole time that Prometheus computes from the
  server's histograms, and those that the clients have measured.
- live: from kubectl annotate until ThresholdLive confirms the new limit.
- alert: from the beginning of a load of 1.5 times the limit until the alert fires.
- step: from the beginning of a load of twice the limit of one server until the engine Direct requests another one.
- lost: streams without all of their tokens during a rollout and a scale-down.
- trace: ten minutes of recorded requests with their numbers of tokens, while Direct adds servers: the tokens and the
  time to the first token that Prometheus has, and those of the clients.
- left: from the end of a client's connection until the slot of its stream is free.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
import uuid
from collections.abc import Callable
from statistics import median
from typing import Any

from support import cluster as clusters
from support.api import eventually
from support.live import percentile
from support.machine import machine
from support.prometheus import Monitoring
from support.recorded import Replicas

from . import figures
from .world import PER_REPLICA, World

HISTOGRAMS = {"first": "vllm:time_to_first_token_seconds", "seconds": "vllm:e2e_request_latency_seconds"}
"""By the field of the clients' records."""
NAMES = {"first": "ttft", "seconds": "duration"}
SERVER = "language"
_SLOTS = 8
LOADS = {"free slots": (8, (10, 60), 0.3), "a queue": (20, (20, 100), 3.0)}
"""Readers, tokens of a stream, and pause between two streams of a reader."""
_ALL = "latencies,live,alert,step,lost,left,trace"
_SCRAPE_SECONDS = 10
_WARM_SECONDS = 30
Results = dict[str, Any]


def say(*words: object) -> None:
    print(*words, file=sys.stderr, flush=True)


def latencies(world: World, seconds: float) -> Results:
    """Compares the quantiles of Prometheus with those of the clients, with a load after another."""
    rows: list[Results] = []
    for number, (load, (readers, tokens, pause)) in enumerate(LOADS.items()):
        # A new TritonModel, so that the histograms have only this load.
        name = f"times-{number}"
        world.serve(name, _SLOTS)
        world.wait_for_metrics(name)
        with world.reads(name, readers, tokens, pause) as result:
            # The same minutes on both sides, without the beginning, while the load stays the same.
            time.sleep(_WARM_SECONDS)
            begin = time.time()
            time.sleep(seconds)
            end = time.time()
            prometheus = {
                field: {q: world.histogram_quantile(name, series, q, end - begin) for q in figures.QUANTILES}
                for field, series in HISTOGRAMS.items()
            }
            # A stream that is left has no record.
            time.sleep(_WARM_SECONDS)
        assert result["failures"] == [], result["failures"]
        for field, series in HISTOGRAMS.items():
            records = [r for r in result["times"] if begin <= r["began"] + r[field] <= end]
            own = [record[field] for record in records]
            theirs, ours = figures.quantiles(own), prometheus[field]
            buckets = figures.through_buckets(own, world.bounds(name, series))
            rows.append(
                {
                    "load": load,
                    "time": NAMES[field],
                    "streams": len(own),
                    "tokens_per_second": round(sum(record["tokens"] for record in records) / seconds, 1),
                    "prometheus": ours,
                    "client": theirs,
                    "client_in_buckets": buckets,
                    "error": figures.error(ours, theirs),
                    "error_of_buckets": figures.error(buckets, theirs),
                    "error_without_buckets": figures.error(ours, buckets),
                }
            )
            say(rows[-1])
        world.delete(name)
    print(
        f"{'load':12}{'time':10}{'streams':>8}   Prometheus P50, P99   client P50, P99   client's, in the same buckets"
    )
    for row in rows:
        cells = "   ".join(
            f"{row[key][0.5]:8.3f}, {row[key][0.99]:.3f}" for key in ("prometheus", "client", "client_in_buckets")
        )
        print(f"{row['load']:12}{row['time']:10}{row['streams']:8}   {cells}")

    def worst(kind: str, key: str) -> float:
        return round(max(row[key] for row in rows if row["time"] == kind), 3)

    return {
        **{f"{kind}_error": worst(kind, "error") for kind in NAMES.values()},
        **{f"{kind}_error_of_buckets": worst(kind, "error_of_buckets") for kind in NAMES.values()},
        **{f"{kind}_error_without_buckets": worst(kind, "error_without_buckets") for kind in NAMES.values()},
        "latencies": rows,
    }


def live(world: World, runs: int) -> Results:
    """Changes max-tps."""
    seconds, limit = [], 1000
    world.change_limit(SERVER, limit)
    for number in range(runs):
        time.sleep(random.uniform(0, _SCRAPE_SECONDS))
        # Raised and lowered by turns.
        limit = random.randrange(5001, 9999) if number % 2 == 0 else random.randrange(1001, 4999)
        seconds.append(world.change_limit(SERVER, limit))
        say(f"max-tps {limit} is live after {seconds[-1]:.1f} s")
    return {"tps_limit_live_s": _most("a limit is live", seconds), "tps_limit_live_p50_s": round(median(seconds), 2)}


def alert(world: World, runs: int) -> Results:
    """Loads the server with 1.5 times the limit, which is its capacity."""
    seconds, limit = [], round(world.capacity / 1.5)
    world.change_limit(SERVER, limit)
    for _ in range(runs):
        eventually(lambda: world.tokens_per_second(SERVER) < limit / 20, 300, "the load to end", 1)
        eventually(lambda: not world.fires(SERVER), 120, "the alert to end", 1)
        time.sleep(random.uniform(0, _SCRAPE_SECONDS))
        with world.reads(SERVER, 8, (50, 50)) as result:
            eventually(lambda: world.fires(SERVER), 180, lambda: f"{world.tokens_per_second(SERVER)} tokens/s", 0.2)
            fired = time.time()
        seconds.append(fired - result["began"])
        say(f"the alert fires after {seconds[-1]:.1f} s")
    return {"tps_alert_s": _most("the alert fires", seconds)}


def step(world: World, runs: int) -> Results:
    """Raises the load of a server above its limit."""
    seconds = []
    for number in range(runs):
        name = f"step-{number}"
        scaling = {"engine": "Direct", "min": 1, "max": 3}
        world.serve(name, annotations={PER_REPLICA: f"{world.capacity / 2:g}"}, autoscaling=scaling)

        def requested(name: str = name) -> int:
            return int(world.namespace.api.get("Deployment", name)["spec"]["replicas"])

        with world.reads(name, 1, (world.capacity // 10,) * 2, 0.5, label="base"):
            time.sleep(30 + random.uniform(0, 2))
            assert requested() == 1, "the load before the step requests a second server already"
            with world.reads(name, 8, (50, 50)) as result:
                eventually(lambda: requested() > 1, 120, lambda name=name: world.namespace.conditions_text(name), 0.05)
                at = time.time()
        seconds.append(at - result["began"])
        say(f"Direct requests a server after {seconds[-1]:.1f} s")
        world.delete(name)
    return {"step_to_request_s": _most("Direct requests a server", seconds)}


def lost(world: World, least: int) -> Results:
    """Rolls servers out and removes one while long and short streams are open, until `least` streams have started."""
    name = "ends"
    rollout = {"drainSeconds": 15, "exitSeconds": 120, "maxSurge": 2}
    world.serve(name, replicas=2, rollout=rollout)
    # A server without new streams gives all of its tokens to those that are left. The long ones are longer than the
    # drain even then.
    long = (9 * world.capacity,) * 2
    short = (world.capacity // 10, world.capacity * 6 // 10)
    results: list[Any] = []
    rounds, started = 0, 0
    while started < least:
        with world.reads(name, 8, long, label="long") as first, world.reads(name, 16, short, label="short") as second:
            before = world.servers(name)
            world.namespace.api.patch("TritonModel", name, {"spec": {"rollout": {"restartedAt": str(time.time())}}})
            eventually(lambda before=before: before.isdisjoint(world.servers(name)), 300, "the rollout", 0.5)
            world.namespace.wait_until_complete(name)
            world.namespace.api.patch("TritonModel", name, {"spec": {"replicas": 1}})
            eventually(lambda: len(world.servers(name)) == 1, 300, "the scale-down", 0.5)
        results += [first, second]
        rounds += 1
        started = sum(result["streams"] + result["left"] + len(result["failures"]) for result in results)
        say(f"{started} streams started in {rounds} rounds")
        if started < least:
            world.namespace.api.patch("TritonModel", name, {"spec": {"replicas": 2}})
            world.namespace.wait_until_complete(name)
    failures = [failure for result in results for failure in result["failures"]]
    for failure in failures:
        say(failure)
    world.delete(name)
    print(f"streams without all of their tokens: {len(failures)} of {started}")
    return {"lost_streams": len(failures), "started_streams": started, "rollouts": rounds}


def trace(world: World) -> Results:
    """Replays recorded requests with Direct."""
    name = "trace"
    scaling = {"engine": "Direct", "min": 1, "max": 3}
    world.serve(name, annotations={PER_REPLICA: f"{world.capacity}"}, autoscaling=scaling)
    world.wait_for_metrics(name)
    numbers = Replicas(world.namespace.api, name)
    result = world.replays(name)
    time.sleep(_SCRAPE_SECONDS * 2)
    seconds = time.time() - result["began"]
    counted = world.all_tokens(name, seconds)
    first = figures.quantiles([record["first"] for record in result["times"]])
    ours = {q: world.histogram_quantile(name, HISTOGRAMS["first"], q, seconds) for q in figures.QUANTILES}
    servers = numbers.seen
    world.delete(name)
    for failure in result["failures"]:
        say(failure)
    print(f"trace: {result['streams']} streams, {len(result['failures'])} failed, servers {servers}")
    print(f"trace: {result['tokens']} tokens at the clients, {counted:.0f} in Prometheus")
    print(f"trace: time to the first token P50, P99: {_pair(first)} s at the clients, {_pair(ours)} s in Prometheus")
    return {
        "trace_streams": result["streams"],
        "trace_failed": len(result["failures"]),
        "trace_late_s": round(result["late"], 3),
        "trace_tokens": result["tokens"],
        "trace_tokens_error": round(abs(counted / result["tokens"] - 1), 4),
        "trace_ttft_error": round(figures.error(ours, first), 3),
        "trace_servers": servers,
    }


def _pair(quantiles: dict[float, float]) -> str:
    return ", ".join(f"{quantiles[q]:.3f}" for q in figures.QUANTILES)


def left(world: World, rounds: int) -> Results:
    """Leaves streams."""
    seconds = world.leaves(SERVER, rounds)
    for protocol, values in seconds.items():
        _most(f"a slot is free ({protocol})", values)
    every = [value for values in seconds.values() for value in values]
    return {
        "cancelled_freed_s": round(max(every), 3),
        **{f"cancelled_freed_{protocol}_p50_s": round(median(values), 3) for protocol, values in seconds.items()},
    }


def _most(words: str, seconds: list[float]) -> float:
    """Prints a row of the table, and returns the maximum."""
    p50, low, high = percentile(seconds, 0.5), min(seconds), max(seconds)
    print(f"{words:34}{len(seconds):4} times   P50 {p50:7.2f} s   {low:.2f} to {high:.2f} s")
    return round(high, 2)


def main() -> int:
    environ = os.environ.get
    parser = argparse.ArgumentParser(prog="streaming", description=__doc__)
    parser.add_argument("--only", default=environ("ONLY", _ALL), help="the measures")
    parser.add_argument("--capacity", type=int, default=int(environ("CAPACITY", "100")), help="tokens/s of a server")
    parser.add_argument("--seconds", type=float, default=float(environ("SECONDS", "180")), help="of each of the loads")
    parser.add_argument("--runs", type=int, default=int(environ("RUNS", "3")), help="loads of alert and of step")
    parser.add_argument("--changes", type=int, default=int(environ("CHANGES", "10")), help="changes of the limit")
    parser.add_argument("--streams", type=int, default=int(environ("STREAMS", "200")), help="streams of lost")
    parser.add_argument("--rounds", type=int, default=int(environ("ROUNDS", "5")), help="of left, with 8 streams each")
    options = parser.parse_args()
    cluster = clusters.ensure()
    clusters.ensure_monitoring()
    measures: dict[str, Callable[[World], Results]] = {
        "latencies": lambda world: latencies(world, options.seconds),
        "left": lambda world: left(world, options.rounds),
        "live": lambda world: live(world, options.changes),
        "alert": lambda world: alert(world, options.runs),
        "step": lambda world: step(world, options.runs),
        "lost": lambda world: lost(world, options.streams),
        "trace": trace,
    }
    results: Results = {}
    with cluster.namespace(f"streaming-{uuid.uuid4().hex[:5]}") as namespace:
        world = World(namespace, Monitoring(cluster), options.capacity)
        selection = options.only.split(",")
        if {"left", "live", "alert"} & set(selection):
            world.serve(SERVER)
            world.wait_for_metrics(SERVER)
        for name, measure in measures.items():
            if name in selection:
                say(f"{name}:")
                results |= measure(world)
        version = cluster.api.request("GET", "/version")["gitVersion"]
    conditions = {
        "machine": machine(),
        "kubernetes": version,
        "node_image": os.environ["KIND_NODE_IMAGE"],
        "operator_image": cluster.operator_image,
        "server_image": cluster.server_image,
        "load_average": os.getloadavg()[1],
        "capacity": options.capacity,
        "seconds": options.seconds,
        "runs": options.runs,
        "changes": options.changes,
        "clock": "times of several runs are the largest one",
    }
    print(json.dumps({**results, "conditions": conditions}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
