"""Generates the tables of tested versions in docs/compatibility.md and docs/newer-triton.md.

As a program, records the last run of the tests on a version: hack/compatibility_page.py Triton 2.51.0
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_END = "<!-- end of results -->"


@dataclass(frozen=True)
class Table:
    """A table of results.

    - `what`: what has versions. `page`: the page with the table.
    - `results`: the file with the results of each version. `target`: of the Makefile, which runs the tests.
    """

    what: str
    page: Path
    results: Path
    target: str

    @property
    def begin(self) -> str:
        return f"<!-- results: made by `make generate` from {self.results} -->\n"


TABLES = (
    Table("Kubernetes", Path("docs/compatibility.md"), Path("tests/compatibility.json"), "compat"),
    Table("Triton", Path("docs/newer-triton.md"), Path("tests/compatibility_triton.json"), "compat-triton"),
)


def record(table: Table, version: str) -> None:
    """Adds the last run of the Makefile's target to the results."""
    report = json.loads((ROOT / ".cache" / "reports" / f"{table.target}.json").read_text())
    if not report["passed"] and not report["failed"]:
        sys.exit(f"a part of the tests on {version} ended early, so there is no result to record")
    file = ROOT / table.results
    results = json.loads(file.read_text()) if file.exists() else {}
    results[version] = {
        "date": report["date"][:10], "tests": report["tests"], "failed": report["failed"], "skipped": report["skipped"],
    }  # fmt: skip
    file.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")


def pages() -> dict[Path, str]:
    """Returns each page with its current table."""
    return {table.page: _page(table) for table in TABLES}


def _page(table: Table) -> str:
    before, _, rest = (ROOT / table.page).read_text().partition(table.begin)
    _, _, after = rest.partition(_END)
    results = json.loads((ROOT / table.results).read_text())
    order = sorted(results, key=lambda version: [int(number) for number in re.findall(r"\d+", version)])
    lines = (*_table(table.what, results, order), *_reasons(results, order))
    return f"{before}{table.begin}{''.join(lines)}{_END}{after}"


def _table(what: str, results: dict[str, Any], order: list[str]) -> Iterator[str]:
    yield f"| {what} | Tested on | Passed | Failed | Skipped |\n|---|---|---|---|---|\n"
    for version in order:
        result = results[version]
        failed, skipped = len(result["failed"]), sum(result["skipped"].values())
        passed = f"{result['tests'] - failed - skipped:,}"
        yield f"| {version.removeprefix('v')} | {result['date']} | {passed} | {failed} | {skipped} |\n"


def _reasons(results: dict[str, Any], order: list[str]) -> Iterator[str]:
    for version in order:
        for test in results[version]["failed"]:
            yield f"\nFailed on {version.removeprefix('v')}: `{test}`.\n"
    reasons = dict.fromkeys(reason for version in order for reason in results[version]["skipped"])
    if reasons:
        yield "\n| Reason of a skipped test | Tests |\n|---|---|\n"
    for reason in reasons:
        counts = [
            f"{results[version]['skipped'][reason]} on {version.removeprefix('v')}"
            for version in order
            if reason in results[version]["skipped"]
        ]
        yield f"| {reason} | {', '.join(counts)} |\n"


if __name__ == "__main__":
    record(next(table for table in TABLES if table.what == sys.argv[1]), sys.argv[2])
