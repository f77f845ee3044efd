"""python3 -m hack.world up GOAL… | purge | mirrored

up        makes the missing parts of the goals: demo, test, or a part of the tests (see `make help`)
purge     removes everything that the Makefile's targets installed on this machine outside the clone
mirrored  prints the images in Docker that the cluster's pods pull from public registries
"""

from __future__ import annotations

import json
import os
import sys
import time

from . import docker, machine, purge, settings
from .job import FailedError
from .part import Source
from .parts import ALL, GOALS, MIRRORED, go
from .progress import say
from .schedule import closure
from .up import up

_SOURCE = settings.HOME / "source"


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["up", *names] if names:
                return _up(names)
            case ["mirrored"]:
                print(*filter(docker.has, MIRRORED), sep="\n")
            case ["purge"]:
                purge.purge()
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except FailedError as error:
        say(str(error))
        if error.advice:
            say(f"try: {error.advice}")
        return 1
    except KeyboardInterrupt:
        say("stopped; run the same command again to continue")
        return 130
    return 0


def _up(names: list[str]) -> int:
    unknown = [name for name in names if name not in GOALS and name not in ALL]
    if unknown:
        raise FailedError(f"no such goal or part: {', '.join(unknown)}", f"one of {', '.join([*GOALS, *ALL])}")
    goals = [part for name in names for part in GOALS.get(name, (name,))]
    same_parts = closure(goals, ALL, "registry") == closure(goals, ALL, "packages")
    source: Source = "packages" if same_parts else machine.source(_SOURCE)
    # The scripts that `up` calls read it.
    os.environ["WORLD"] = source
    start = time.monotonic()
    took = up(goals, ALL, source)
    if not same_parts:
        _SOURCE.write_text(source)
    if took and source == "packages" and set(names) & {"test", "test-all"}:
        go.forget_caches()
    # For the benchmarks bare and suite: the seconds of the whole, and of each part. Parts are made beside each other.
    if took and (report := os.environ.get("WORLD_REPORT")):
        parts = {name: round(seconds, 1) for name, seconds in took.items()}
        with open(report, "a") as file:  # noqa: PTH123
            file.write(json.dumps({"seconds": round(time.monotonic() - start, 1), "parts": parts}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
