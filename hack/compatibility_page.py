"""Generates docs/compatibility.md. With a release of Kubernetes, first records the last run of the tests on it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from triton_operator.api import kubernetes_versions as versions

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "tests" / "compatibility.json"
REPORT = ROOT / ".cache" / "reports" / "compat.json"
_OLDEST, _NEWEST = versions.name(versions.OLDEST), versions.name(versions.NEWEST)

_HEAD = f"""\
<!-- Made by `make generate` from hack/compatibility_page.py and tests/compatibility.json; change these instead. -->
# Versions of Kubernetes

For platform engineers: which versions of Kubernetes the operator supports, and how that is tested.

**Kubernetes {_OLDEST} to {_NEWEST}.** Helm and OLM refuse to install the operator on an older version. If it runs there
nevertheless, its log warns, and so does the condition `Progressing` of each TritonModel.

The rule for the future: the operator supports at least the minor versions that the Kubernetes project maintains, and
the two before them. An older version stays supported for as long as it costs nothing. The changelog announces the end.

"""
_TAIL = """\

`make compat` downloads or compiles the API server, the controller manager and the scheduler of the oldest and the
newest version, runs all tests that need a control plane, and writes this page.
`make compat KUBERNETES="v1.33.5 v1.34.4"` does it with these releases, and `make compat KUBERNETES=all` with one of
each supported minor version. `make test-all` installs the operator on the oldest and the newest version, and runs the
tests of admission and of the policies there.

The CRD's validation rules use at most half of the cost that the oldest API server allows
(`tests/integration/test_compatibility.py`). API servers don't estimate the cost of a ValidatingAdmissionPolicy.
"""


def record(release: str) -> None:
    """Adds the last run of `make compat` to the results."""
    report = json.loads(REPORT.read_text())
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[release] = {
        "date": report["date"][:10], "tests": report["tests"], "failed": report["failed"], "skipped": report["skipped"],
    }  # fmt: skip
    RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")


def text() -> str:
    """Returns the page."""
    results = json.loads(RESULTS.read_text())
    order = sorted(results, key=lambda release: [int(number) for number in release.removeprefix("v").split(".")])
    return _HEAD + "".join(_table(results, order)) + "".join(_reasons(results, order)) + _TAIL


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
