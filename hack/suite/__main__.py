"""python -m hack.suite NAME…: runs these parts of the tests, or groups of them; hack/test.sh prepares the machine."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time

from . import report
from .parts import GROUPS, chosen
from .process import LOGS, REPORTS, ROOT
from .run import Suite, say

# tests/support/evidence.py writes what failed tests leave.
EVIDENCE = ROOT / ".cache" / "failures"


def main(names: list[str]) -> int:
    try:
        parts = chosen(names, soak=os.environ.get("SOAK") == "1")
    except ValueError as error:
        say(str(error))
        return 2
    for folder in (LOGS, REPORTS):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(EVIDENCE, ignore_errors=True)
    start = time.monotonic()
    try:
        results = Suite(parts).run()
    except KeyboardInterrupt:
        say("stopped")
        return 130
    took = time.monotonic() - start
    for name in names:
        if name in GROUPS:
            (REPORTS / f"{name}.json").write_text(json.dumps(report.figures(results, took)))
    print(report.text(results, EVIDENCE))
    return 1 if any(result.failed for result in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
