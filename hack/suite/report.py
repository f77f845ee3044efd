"""Reads pytest's JUnit reports and prints the summary of a run."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

SLOWEST = 10
MOST_AGAIN = 5
"""The maximum number of failures after which the failed tests run a second time: more is a broken product."""
LINES, WIDTH = 15, 300
"""The maximum number of lines of an error, and of characters of a line. A line may contain a whole log."""

_OF_A_GROUP = re.compile(r"\s+\| \w[\w.]*(Error|Exception|Failure|Flaky)\w*\b")
"""Matches the line of an error of an exception group, such as "    | AssertionError: no answer"."""


@dataclass(frozen=True)
class Case:
    """One test of a report: its file and name, its seconds with setup and teardown, and the errors of the three.

    `ran`: False if it failed before its own code ran, in the set-up. `skipped`: why it didn't run; "" if it did.
    """

    name: str
    seconds: float
    errors: tuple[str, ...] = ()
    skipped: str = ""
    ran: bool = True


@dataclass(frozen=True)
class Result:
    """A part that ended.

    Attributes:
        seconds: its duration.
        code: pytest's exit code (1: tests failed, 5: it selected no test; others: it ended early).
        again: the second run of the tests that failed, if there was one.
    """

    name: str
    seconds: float
    code: int
    cases: tuple[Case, ...]
    log: Path
    again: Result | None = None

    @property
    def failures(self) -> tuple[Case, ...]:
        """The tests that failed; without those that passed the second time."""
        return tuple(case for case in self._failed_first if case.name not in self._passed_again)

    @property
    def unsteady(self) -> tuple[Case, ...]:
        """The tests that failed, then passed."""
        return tuple(case for case in self._failed_first if case.name in self._passed_again)

    @property
    def failed(self) -> bool:
        if self.again is None:
            return self.code != 0
        return self.again.code != 0 or bool(self.failures)

    @property
    def _failed_first(self) -> list[Case]:
        return [case for case in self.cases if case.errors]

    @property
    def _passed_again(self) -> set[str]:
        return {case.name for case in (self.again.cases if self.again else ()) if not case.errors and not case.skipped}


def has_second_round(results: Iterable[Result]) -> bool:
    """Returns whether the failed tests run again: if these are all that failed, and few.

    Tests whose set-up failed with the same error are one failure: a fixture that many tests share fails all of them.
    """
    failed = [result for result in results if result.failed]
    failures = {
        (result.name, case.name if case.ran else _first_line(case.errors[0]))
        for result in failed
        for case in result.failures
    }
    return 0 < len(failures) <= MOST_AGAIN and all(result.code == 1 and result.failures for result in failed)


def read(report: Path) -> tuple[Case, ...]:
    """Returns the tests of a JUnit report; none if pytest ended before it wrote a whole one."""
    cases: dict[str, Case] = {}
    try:
        for element in ET.parse(report).iter("testcase"):
            case = _case(element)
            # A test that fails, and its teardown too, has two elements.
            former = cases.get(case.name, case)
            cases[case.name] = case if former is case else replace(former, errors=former.errors + case.errors)
    except (FileNotFoundError, ET.ParseError):
        return ()
    return tuple(cases.values())


def _case(element: ET.Element) -> Case:
    problems = [problem for kind in ("failure", "error") for problem in element.findall(kind)]
    return Case(
        name=f"{element.get('classname')}::{element.get('name')}", seconds=float(element.get("time") or 0),
        errors=tuple(map(_error, problems)), skipped=_reason(element.find("skipped")),
        ran=not any((problem.get("message") or "").startswith("failed on setup with") for problem in problems),
    )  # fmt: skip


def _reason(skipped: ET.Element | None) -> str:
    return "" if skipped is None else skipped.get("message") or "no reason"


def _error(problem: ET.Element) -> str:
    """Returns the lines of a traceback that have an error, and its last line, which names the place."""
    lines = (problem.text or problem.get("message") or "").rstrip().splitlines()
    marked = [line for line in lines if line.startswith("E ") or _OF_A_GROUP.match(line)] or lines
    return "\n".join(line[:WIDTH] for line in [*marked[:LINES], *lines[-1:]])


def text(results: Iterable[Result], evidence: Path) -> str:
    """Returns the summary: the slowest tests, the parts with their times, and failures.

    Failures come last, and after them a line for each and for each unsteady test, because some CI systems show only the
    end of an output. The last line is "N passed, N failed, N unsteady, N skipped". `evidence` is the folder of the
    files that failed tests left.
    """
    results = list(results)
    cases = [case for result in results for case in result.cases]
    failures = [case for result in results for case in result.failures]
    unsteady = [(case, result) for result in results for case in result.unsteady]
    skipped = sum(bool(case.skipped) for case in cases)
    passed = len(cases) - len(failures) - len(unsteady) - skipped
    lines = ["", "the slowest tests:", *(f"{case.seconds:8.1f} s  {case.name}" for case in slowest(cases))]
    lines += ["", "the parts:", *(_line(result) for result in results), *_failures(results, evidence), ""]
    for case, result in unsteady:
        assert result.again is not None
        lines.append(f"unsteady: {case.name} failed, then passed; its output: {result.log} {result.again.log}")
    lines += [f"failed: {case.name}: {_first_line(case.errors[0])}"[:WIDTH] for case in failures]
    lines.append(f"{passed} passed, {len(failures)} failed, {len(unsteady)} unsteady, {skipped} skipped")
    return "\n".join(lines)


def _first_line(error: str) -> str:
    return next(iter(error.splitlines()), "").removeprefix("E").strip(" |")


def slowest(cases: Iterable[Case]) -> list[Case]:
    return sorted(cases, key=lambda case: -case.seconds)[:SLOWEST]


def _failures(results: list[Result], evidence: Path) -> Iterator[str]:
    for result in results:
        for case in result.cases:
            if case.errors:
                yield f"\n{result.name}: {case.name}{' (unsteady)' if case in result.unsteady else ''}"
                yield from (f"  {line}" for error in case.errors for line in error.splitlines())
        if result.failed:
            logs = [result.log, *([result.again.log] if result.again else [])]
            yield f"\n{result.name} failed; its output: {' '.join(map(str, logs))}"
            if not result.failures:
                # Such as an error of collection, or a killed process.
                yield from (f"  {line[:WIDTH]}" for line in _tail(logs[-1]))
    if evidence.exists() and any(evidence.iterdir()):
        yield f"\nobjects, Events and logs of the failed tests: {evidence}"


def _tail(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-LINES:] if log.exists() else []


def _line(result: Result) -> str:
    count, state = len(result.cases), "FAILED" if result.failed else "passed"
    again = f", and {result.again.seconds:.0f} s for the second time" if result.again else ""
    return f"{result.seconds:8.0f} s  {result.name}: {state}, {count} {'test' if count == 1 else 'tests'}{again}"


def figures(results: Iterable[Result], seconds: float) -> dict[str, object]:
    """Returns what `make bench NAME=suite` and `make compat` read."""
    results = list(results)
    cases = [case for result in results for case in result.cases]
    return {
        "seconds": round(seconds, 1),
        "passed": not any(result.failed for result in results),
        "tests": len(cases),
        "skipped": dict(Counter(case.skipped for case in cases if case.skipped)),
        "failed": [case.name for result in results for case in result.failures],
        "unsteady": [case.name for result in results for case in result.unsteady],
        "parts": {result.name: round(result.seconds, 1) for result in results},
        "slowest": {case.name: round(case.seconds, 1) for case in slowest(cases)},
    }
