"""Counts the faults that `kubectl triton validate --with-server` reports, and the legal repositories that it accuses.

Runs it on tests/corpus/run, and on the good and the legal repositories of the corpus, and writes
tests/corpus/told.json, from which `make generate` makes a table of docs/validate.md. With directories, runs it on the
repositories in them instead, and prints the findings.

    python hack/run_told.py
    python hack/run_told.py --image triton-operator/server:newer --print
    python hack/run_told.py /tmp/public-examples/*
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "operator")]

from corpus.good import GOOD  # noqa: E402
from corpus.legal import LEGAL  # noqa: E402
from corpus.run_cases import RUN_CASES  # noqa: E402
from kubectl_triton.validate import tritonserver, with_server  # noqa: E402
from triton_repository_check.expected import Expected  # noqa: E402
from triton_repository_check.files import Directory  # noqa: E402
from triton_repository_check.findings import Finding, Severity  # noqa: E402
from triton_repository_check.load import load  # noqa: E402

TOLD = ROOT / "tests/corpus/told.json"
AT_ONCE = 2
AS_TRIED = Expected(shared_memory=256 << 20)
"""The server with which the faults of tests/corpus/run were seen."""


def judged(root: Path, expected: Expected, run: with_server.Run) -> list[Finding]:
    """Returns what the server shows about a repository."""
    store = Directory(root)
    repository, _ = load(store)
    return list(with_server.findings(store, repository, expected, run))


def cases() -> Iterator[tuple[str, str, Any, Expected]]:
    """Yields name, kind, the case and its settings of the server."""
    for case in RUN_CASES:
        yield case.name, case.kind, case, AS_TRIED
    for other in (*GOOD, *LEGAL):
        yield other.name, "legal", other, other.expected


def main() -> int:
    """Runs the command line. Returns 1 if a legal repository has an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", default=tritonserver.IMAGE)
    parser.add_argument("--print", action="store_true", dest="only_print", help="don't write tests/corpus/told.json")
    parser.add_argument("--only", action="append", default=[], help="a case to run; the others keep their results")
    parser.add_argument("directories", nargs="*", type=Path)
    options = parser.parse_args()
    run = with_server.Run(options.image, request_seconds=10)
    if options.directories:
        return _directories(options.directories, run)

    def one(row: tuple[str, str, Any, Expected]) -> tuple[str, str, list[Finding]]:
        name, kind, case, expected = row
        with tempfile.TemporaryDirectory() as folder:
            root = case.write(Path(folder) / "models")
            root.parent.chmod(0o755)
            return name, kind, judged(root, expected, run)

    before = json.loads(TOLD.read_text()) if options.only else {}
    told: dict[str, dict[str, str]] = {kind: rows for kind, rows in before.items() if kind != "image"}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name, kind, findings in pool.map(one, (row for row in cases() if row[0] in (options.only or [row[0]]))):
            worst = _worst(findings)
            told.setdefault(kind, {})[name] = worst
            print(f"{kind} {name}: {worst or 'nothing'}", *findings, sep="\n    ", flush=True)
    wrong = list(told["legal"].values()).count(Severity.ERROR)
    faults = [worst for kind, rows in told.items() if kind != "legal" for worst in rows.values()]
    number = sum(worst in (Severity.ERROR, Severity.WARNING) for worst in faults)
    print(f"told: {number} of {len(faults)} = {number / len(faults):.3f}; legal with an error: {wrong}")
    if not options.only_print:
        TOLD.write_text(
            json.dumps({"image": options.image, **told}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        )
    return 1 if wrong else 0


def _directories(directories: list[Path], run: with_server.Run) -> int:
    wrong = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = pool.map(lambda root: judged(root, Expected(), run), directories)
        for root, findings in zip(directories, results, strict=True):
            wrong += _worst(findings) == Severity.ERROR
            print(root, *findings, sep="\n    ", flush=True)
    print(f"{len(directories)} repositories, {wrong} with errors")
    return 1 if wrong else 0


def _worst(findings: list[Finding]) -> str:
    severities = {finding.severity for finding in findings}
    return next((str(severity) for severity in Severity if severity in severities), "")


if __name__ == "__main__":
    sys.exit(main())
