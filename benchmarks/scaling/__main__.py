"""Measures how soon and how well each autoscaling engine follows a load, on kind with real servers.

The engines alternate: each load runs with one engine after the other, each time with a new TritonModel. With AT_ONCE=3
it runs with three engines at the same time, which takes a third of the time and shares the machine between them. Then
the operator, and Prometheus, are killed while the load of a TritonModel with the engine Direct grows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from statistics import mean, median

from support import cluster as clusters
from support import keda_cluster
from support.machine import machine
from support.prometheus import Monitoring

from . import figures, loads
from .figures import Change, Outcome
from .loads import BASE, HIGH, LEAST, MOST, PER_SERVER, UTILIZATION, Load
from .world import World

HPA, DIRECT, KEDA = "HPA", "Direct", "KEDA"
_NEEDED = 4
"""Servers that the load after a step needs."""
_PHASE_SECONDS = 15
"""The interval of the HorizontalPodAutoscaler."""
Runs = dict[tuple[str, str], list[Outcome]]
"""The outcomes of each load and engine."""


def run(world: World, load: Load, name: str) -> Outcome:
    """Runs `load` on the TritonModel `name`, and deletes it."""
    # Otherwise each load could begin at the same place of the intervals.
    time.sleep(random.uniform(0, _PHASE_SECONDS))
    with world.sends(name, load.rates) as recorded:
        pass
    seconds, changes = len(load.rates), recorded.changes
    within = [change for change in changes if change.at <= seconds]
    outcome = Outcome(
        late=figures.late_seconds(recorded.arrived, within, PER_SERVER),
        unavoidable=figures.late_seconds(recorded.arrived, [Change(0, MOST, MOST)], PER_SERVER),
        mean=round(figures.mean_servers(within, seconds), 2),
        most=max(change.desired for change in within),
        oscillations=figures.oscillations(within),
        reaction=None if load.step is None else figures.first_rise(within, load.step),
        **recorded.tally,
    )
    print(f"{name}: {outcome}", file=sys.stderr, flush=True)
    world.delete(name)
    return outcome


def compare(
    world: World, engines: Sequence[str], names: Sequence[str], seconds: int, rounds: int, at_once: int
) -> Runs:
    """Runs each load `rounds` times with each engine, `at_once` engines at the same time."""
    runs: Runs = {}
    for number in range(rounds):
        for name in names:
            load = loads.load(name, seconds)
            # Another engine begins each round.
            first = number % len(engines)
            models = {f"{engine.lower()}-{name}-{number}": engine for engine in (*engines[first:], *engines[:first])}
            world.create(models)
            with ThreadPoolExecutor(at_once) as pool:
                outcomes = pool.map(partial(run, world, load), models)
            for engine, outcome in zip(models.values(), outcomes, strict=True):
                runs.setdefault((name, engine), []).append(outcome)
    return runs


def killed_operator(world: World) -> bool:
    """Whether the autoscaler goes on after the operator is killed during a step, and no server is removed."""
    begin, more, end = 30, 75, 225
    world.create({"no-operator": DIRECT})
    rates = (BASE,) * begin + (2 * BASE,) * (more - begin) + (HIGH,) * (end - more)
    with world.operator_to_kill() as operator, world.sends("no-operator", rates) as recorded:
        while figures.first_rise(recorded.changes, begin) is None and recorded.now < more - 10:
            time.sleep(0.2)
        operator.kill()
        killed = recorded.now
        recorded.wait(end)
    changes = recorded.changes
    print(f"the operator was killed at {killed:.0f} s: {changes} {recorded.tally}", file=sys.stderr, flush=True)
    world.delete("no-operator")
    return changes[-1].desired >= _NEEDED and not figures.falls(changes, begin, end)


def killed_prometheus(world: World) -> bool:
    """Whether the engine Direct adds the servers that a step needs, without Prometheus."""
    begin, end = 30, 100
    world.create({"no-prometheus": DIRECT})
    with world.no_prometheus(), world.sends("no-prometheus", (BASE,) * begin + (HIGH,) * (end - begin)) as recorded:
        recorded.wait(end)
    changes = recorded.changes
    print(f"without Prometheus: {changes} {recorded.tally}", file=sys.stderr, flush=True)
    world.delete("no-prometheus")
    return changes[-1].desired >= _NEEDED and not figures.falls(changes, 0, end)


def of_engine(runs: Runs, engine: str) -> dict[str, object]:
    """Returns the results of one engine: of each load, and of all."""
    hpa = {key: of for key, of in runs.items() if key[1] == HPA}
    mine = {key: of for key, of in runs.items() if key[1] == engine}
    reactions = [outcome.reaction for of in mine.values() for outcome in of if outcome.reaction is not None]
    return {
        "step_to_request_s": round(median(reactions), 1) if reactions else None,
        "unavoidable_late_seconds": {name: of[0].unavoidable for (name, _), of in mine.items()},
        "late_seconds": {name: mean(outcome.late for outcome in of) for (name, _), of in mine.items()},
        "replicas": {name: round(mean(outcome.mean for outcome in of), 2) for (name, _), of in mine.items()},
        "late_seconds_vs_hpa": _ratio(mine, hpa, "late"),
        "replicas_vs_hpa": _ratio(mine, hpa, "mean"),
        "oscillations": max(outcome.oscillations for of in mine.values() for outcome in of),
        "slow_requests": sum(outcome.slow for of in mine.values() for outcome in of),
        "failed_requests": sum(outcome.failed for of in mine.values() for outcome in of),
        "runs": {name: [asdict(outcome) for outcome in of] for (name, _), of in mine.items()},
    }


def _ratio(mine: Runs, hpa: Runs, key: str) -> float | None:
    ours, theirs = (sum(getattr(outcome, key) for of in runs.values() for outcome in of) for runs in (mine, hpa))
    return round(ours / theirs, 2) if theirs else None


def main() -> int:
    environ = os.environ.get
    parser = argparse.ArgumentParser(prog="scaling", description=__doc__)
    parser.add_argument(
        "--engines", default=environ("ENGINES", f"{HPA},{DIRECT},{KEDA}"), help="values of autoscaling.engine"
    )
    parser.add_argument("--loads", default=environ("LOADS", ",".join(loads.NAMES)), help="step, ramp, conv and code")
    parser.add_argument("--seconds", type=int, default=int(environ("SECONDS", "600")), help="length of each load")
    parser.add_argument("--rounds", type=int, default=int(environ("ROUNDS", "3")), help="how often each load runs")
    parser.add_argument("--kills", type=int, default=int(environ("KILLS", "1")), help="0: kill nothing")
    parser.add_argument(
        "--at-once", type=int, default=int(environ("AT_ONCE", "1")), help="number of engines that run at the same time"
    )
    options = parser.parse_args()
    engines, names = options.engines.split(","), options.loads.split(",")
    cluster = clusters.ensure()
    clusters.ensure_monitoring()
    runs: Runs = {}
    killed: dict[str, bool | None] = {"killed_operator_ok": None, "killed_prometheus_ok": None}
    with contextlib.ExitStack() as stack:
        if KEDA in engines:
            stack.enter_context(keda_cluster.installed(cluster))
        namespace = stack.enter_context(cluster.namespace(f"scaling-{uuid.uuid4().hex[:5]}"))
        world = World(namespace, Monitoring(cluster))
        if options.rounds:
            runs = compare(world, engines, names, options.seconds, options.rounds, options.at_once)
        if options.kills:
            killed["killed_operator_ok"] = killed_operator(world)
            killed["killed_prometheus_ok"] = killed_prometheus(world)
        version = cluster.api.request("GET", "/version")["gitVersion"]
    results = {engine: of_engine(runs, engine) for engine in engines} if runs else {}
    for engine, result in results.items():
        print(engine, {key: value for key, value in result.items() if key != "runs"})
    keys = ("step_to_request_s", "late_seconds_vs_hpa", "replicas_vs_hpa", "oscillations")
    print(
        json.dumps(
            {
                **{key: results.get(DIRECT, {}).get(key) for key in keys},
                **killed,
                "engines": results,
                "conditions": {
                    "machine": machine(),
                    "kubernetes": version,
                    "operator_image": cluster.operator_image,
                    "server_image": cluster.server_image,
                    "model": "sleeps for 20 ms, one instance for each server",
                    "scaling": {"min": LEAST, "max": MOST, "utilization": UTILIZATION, "per_server": PER_SERVER},
                    "seconds": options.seconds,
                    "rounds": options.rounds,
                    "at_once": options.at_once,
                },
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
