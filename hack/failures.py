"""What failed, once more: `failures.py REPORT…` prints the tests that failed out of pytest's JUnit reports.

A run of all parts is thousands of lines long; what its reader wants stands at the end.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

LINES, WIDTH = 15, 300
"""Of what pytest marks as the error, and of a line of it, which may hold a whole log."""


def failures(report: Path) -> Iterator[str]:
    """A text for each test of the report that failed, or that couldn't be set up or taken down."""
    for case in ET.parse(report).iter("testcase"):
        for ending in (*case.findall("failure"), *case.findall("error")):
            text = (ending.text or ending.get("message", "")).rstrip().splitlines()
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
