"""python -m hack.suite NAME…: runs these parts of the tests, or groups of them; hack/test.sh prepares the machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime

from . import report
from .parts import GROUPS, chosen
from .process import EVIDENCE, LOGS, REPORTS, ROOT
from .run import Suite, say, take_signals


def main(names: list[str]) -> int:
    try:
        kubernetes = os.environ.get("KUBERNETES", "") if "compat" in names else ""
        parts = chosen(names, soak=os.environ.get("SOAK") == "1", kubernetes=kubernetes)
    except ValueError as error:
        say(str(error))
        return 2
    for folder in (LOGS, REPORTS):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(EVIDENCE, ignore_errors=True)
    start, date, commit = time.monotonic(), datetime.now(UTC), _commit()
    take_signals()
    try:
        results = Suite(parts).run()
    except KeyboardInterrupt:
        say("stopped")
        return 130
    took, failed = time.monotonic() - start, any(result.failed for result in results)
    title = (
        f"{' '.join(names)} of {commit}, {date:%Y-%m-%d %H:%M:%S} UTC: {'FAILED' if failed else 'passed'}, {took:.0f} s"
    )
    figures = {**report.figures(results, took), "commit": commit, "date": date.isoformat(timespec="seconds")}
    for name in names:
        if name in GROUPS:
            (REPORTS / f"{name}.json").write_text(json.dumps(figures))
    words = report.text(results, EVIDENCE)
    (REPORTS / f"run-{date:%Y%m%dT%H%M%SZ}.txt").write_text(f"{title}\n{words}\n")
    print(f"\n{title}\n{words}")
    return 1 if failed else 0


def _commit() -> str:
    """Returns the commit of the tested tree, with a plus if something isn't committed."""

    def git(*arguments: str) -> str:
        result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return result.stdout.strip()

    return (git("rev-parse", "--short=12", "HEAD") or "no commit") + ("+" if git("status", "--porcelain") else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
