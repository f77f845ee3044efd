"""Generates the table in docs/compatibility.md. As a program, records the last run of the tests on a release."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tests" / "compatibility.json"
REPORT = ROOT / ".cache" / "reports" / "compat.json"
PAGE = ROOT / "docs" / "compatibility.md"
_BEGIN, _END = "<!-- results: made by `make generate` from tests/compatibility.json -->\n", "<!-- end of results -->"


def record(release: str) -> None:
    """Adds the last run of `make compat` to the results."""
    report = json.loads(REPORT.read_text())
    if not report["passed"] and not report["failed"]:
        sys.exit(f"a part of the tests on {release} ended early, so there is no result to record")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[release] = {
        "date": report["date"][:10], "tests": report["tests"], "failed": report["failed"], "skipped": report["skipped"],
    }  # fmt: skip
    RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")


def text() -> str:
    """Returns the page with the current table."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    results = json.loads(RESULTS.read_text())
    order = sorted(results, key=lambda release: [int(number) for number in re.findall(r"\d+", release)])
    return f"{before}{_BEGIN}{''.join((*_table(results, order), *_reasons(results, order)))}{_END}{after}"


def _table(results: dict[str, Any], order: list[str]) -> Iterator[str]:
    yield "| Kubernetes | Tested on | Passed | Failed | Skipped |\n|---|---|---|---|---|\n"
    for release in order:
        result = results[release]
        failed, skipped = len(result["failed"]), sum(result["skipped"].values())
        passed = f"{result['tests'] - failed - skipped:,}"
        yield f"| {release.removeprefix('v')} | {result['date']} | {passed} | {failed} | {skipped} |\n"


def _reasons(results: dict[str, Any], order: list[str]) -> Iterator[str]:
    for release in order:
        for test in results[release]["failed"]:
            yield f"\nFailed on {release.removeprefix('v')}: `{test}`.\n"
    reasons = dict.fromkeys(reason for release in order for reason in results[release]["skipped"])
    if reasons:
        yield "\n| Reason of a skipped test | Tests |\n|---|---|\n"
    for reason in reasons:
        counts = [
            f"{results[release]['skipped'][reason]} on {release.removeprefix('v')}"
            for release in order
            if reason in results[release]["skipped"]
        ]
        yield f"| {reason} | {', '.join(counts)} |\n"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        record(name)
