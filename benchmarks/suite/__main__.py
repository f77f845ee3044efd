"""Prints how long the last runs of `make test` and `make test-all` took, and which tests and parts took longest.

It runs nothing: it reads the reports that hack/test.sh has left in .cache/reports.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from hack.suite.process import REPORTS
from support.machine import machine


def main() -> int:
    runs = {name: _read(name) for name in ("test", "test-all")}
    for name, run in runs.items():
        if run is None:
            print(f"make {name} hasn't run in this clone")
            continue
        print(f"make {name}: {run['seconds']:.0f} s, {run['tests']} tests, {'passed' if run['passed'] else 'FAILED'}")
        _table("parts", run["parts"])
        _table("slowest tests", run["slowest"])
    world_s, world = _world()
    _table(f"parts of the world, {world_s:.0f} s in all", world)
    print(
        json.dumps(
            {
                "test_s": runs["test"] and runs["test"]["seconds"],
                "test_all_s": runs["test-all"] and runs["test-all"]["seconds"],
                "world_s": world_s,
                "runs": runs,
                "world": world,
                "machine": machine(),
            }
        )
    )
    return 0 if any(runs.values()) else 1


def _read(group: str) -> dict[str, Any] | None:
    """Returns what hack.suite.report.figures wrote."""
    path = REPORTS / f"{group}.json"
    return json.loads(path.read_text()) if path.exists() else None


def _world() -> tuple[float, dict[str, float]]:
    """Returns the seconds for which this clone's runs made parts of hack/world, and those of each part."""
    path = REPORTS / "world"
    runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    parts: dict[str, float] = {}
    for run in runs:
        # Every run reports the cluster, but only the first creates it.
        parts |= {name: max(seconds, parts.get(name, 0.0)) for name, seconds in run["parts"].items()}
    return round(sum(run["seconds"] for run in runs), 1), parts


def _table(title: str, seconds: dict[str, float]) -> None:
    print(f"  {title}:")
    for name, took in sorted(seconds.items(), key=lambda item: -item[1]):
        print(f"{took:10.1f} s  {name}")


if __name__ == "__main__":
    sys.exit(main())
