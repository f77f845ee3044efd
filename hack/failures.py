"""`failures.py REPORT…`: prints the failed tests in pytest's JUnit reports.

The output of a run of all parts has thousands of lines; this summary is printed after it.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

LINES, WIDTH = 15, 300
"""The maximum number of lines of an error, and of characters of a line. A line may contain a whole log."""


def failures(report: Path) -> Iterator[str]:
    """Yields a text for each test whose call, setup or teardown failed."""
    for case in ET.parse(report).iter("testcase"):
        for problem in (*case.findall("failure"), *case.findall("error")):
            text = (problem.text or problem.get("message", "")).rstrip().splitlines()
            marked = [line for line in text if line.startswith("E ")] or text
            shown = [*marked[:LINES], *text[-1:]]
            yield "\n  ".join([f"{case.get('classname')}::{case.get('name')}", *(line[:WIDTH] for line in shown)])


def main(reports: list[Path]) -> None:
    for report in reports:
        if not report.exists():
            print(f"{report.name}: pytest left no report")
            continue
        for text in failures(report):
            print(f"{report.name}: {text}")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
