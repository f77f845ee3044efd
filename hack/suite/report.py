"""Reads pytest's JUnit reports and prints the summary of a run."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SLOWEST = 10
LINES, WIDTH = 15, 300
"""The maximum number of lines of an error, and of characters of a line. A line may contain a whole log."""

_OF_A_GROUP = re.compile(r"\s+\| \w[\w.]*(Error|Exception|Failure|Flaky)\w*\b")
"""Matches the line of an error of an exception group, such as "    | AssertionError: no answer"."""


@dataclass(frozen=True)
class Case:
    """One test of a report: its file and name, its seconds with setup and teardown, and the errors of the three."""

    name: str
    seconds: float
    errors: tuple[str, ...] = ()
    skipped: bool = False


@dataclass(frozen=True)
class Result:
    """A part that ended. `seconds` is its duration; `code` is pytest's exit code (5: it selected no test)."""

    name: str
    seconds: float
    code: int
    cases: tuple[Case, ...]
    log: Path

    @property
    def failed(self) -> bool:
        return self.code != 0


def read(report: Path) -> tuple[Case, ...]:
    """Returns the tests of a JUnit report; none if pytest ended before it wrote a whole one."""
    try:
        return tuple(_case(element) for element in ET.parse(report).iter("testcase"))
    except (FileNotFoundError, ET.ParseError):
        return ()


def _case(element: ET.Element) -> Case:
    errors = tuple(_error(problem) for kind in ("failure", "error") for problem in element.findall(kind))
    return Case(
        name=f"{element.get('classname')}::{element.get('name')}", seconds=float(element.get("time") or 0),
        errors=errors, skipped=element.find("skipped") is not None,
    )  # fmt: skip


def _error(problem: ET.Element) -> str:
    """Returns the lines of a traceback that have an error, and its last line, which names the place."""
    lines = (problem.text or problem.get("message") or "").rstrip().splitlines()
    marked = [line for line in lines if line.startswith("E ") or _OF_A_GROUP.match(line)] or lines
    return "\n".join(line[:WIDTH] for line in [*marked[:LINES], *lines[-1:]])


def text(results: Iterable[Result], evidence: Path) -> str:
    """Returns the summary: the slowest tests, the parts with their times, and failures.

    Failures come last, and after them a line for each, because some CI systems show only the end of an output. The
    last line is "N passed, N failed, N skipped". `evidence` is the folder of the files that failed tests left.
    """
    results = list(results)
    cases = [case for result in results for case in result.cases]
    failed = [case for case in cases if case.errors]
    skipped = sum(case.skipped for case in cases)
    lines = ["", "the slowest tests:", *(f"{case.seconds:8.1f} s  {case.name}" for case in slowest(cases))]
    lines += ["", "the parts:", *(_line(result) for result in results), *_failures(results, evidence), ""]
    lines += [f"failed: {case.name}: {_first_line(case.errors[0])}"[:WIDTH] for case in failed]
    lines.append(f"{len(cases) - len(failed) - skipped} passed, {len(failed)} failed, {skipped} skipped")
    return "\n".join(lines)


def _first_line(error: str) -> str:
    return next(iter(error.splitlines()), "").removeprefix("E").strip(" |")


def slowest(cases: Iterable[Case]) -> list[Case]:
    return sorted(cases, key=lambda case: -case.seconds)[:SLOWEST]


def _failures(results: list[Result], evidence: Path) -> Iterator[str]:
    for result in results:
        for case in result.cases:
            if case.errors:
                yield f"\n{result.name}: {case.name}"
                yield from (f"  {line}" for error in case.errors for line in error.splitlines())
        if result.failed:
            yield f"\n{result.name} failed; its output: {result.log}"
            if not any(case.errors for case in result.cases):
                # Such as an error of collection, or a killed process.
                yield from (f"  {line[:WIDTH]}" for line in _tail(result.log))
    if evidence.exists() and any(evidence.iterdir()):
        yield f"\nobjects, Events and logs of the failed tests: {evidence}"


def _tail(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-LINES:] if log.exists() else []


def _line(result: Result) -> str:
    count, state = len(result.cases), "FAILED" if result.failed else "passed"
    return f"{result.seconds:8.0f} s  {result.name}: {state}, {count} {'test' if count == 1 else 'tests'}"


def figures(results: Iterable[Result], seconds: float) -> dict[str, object]:
    """Returns what `make bench NAME=suite` reads."""
    results = list(results)
    cases = [case for result in results for case in result.cases]
    return {
        "seconds": round(seconds, 1),
        "passed": not any(result.failed for result in results),
        "tests": len(cases),
        "parts": {result.name: round(result.seconds, 1) for result in results},
        "slowest": {case.name: round(case.seconds, 1) for case in slowest(cases)},
    }
