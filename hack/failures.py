"""What failed, once more: `failures.py REPORT…` prints the tests that failed out of pytest's JUnit reports.

A run of all parts is thousands of lines long; what its reader wants stands at the end.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

LINES = 25
"""Of a failure's text, from its end: what was expected, what was there, and where."""


def failures(report: Path) -> Iterator[str]:
    """A text for each test of the report that failed, or that couldn't be set up or taken down."""
    for case in ET.parse(report).iter("testcase"):
        for ending in (*case.findall("failure"), *case.findall("error")):
            text = (ending.text or ending.get("message", "")).rstrip().splitlines()
            yield "\n  ".join([f"{case.get('classname')}::{case.get('name')}", *text[-LINES:]])


def main(reports: list[Path]) -> None:
    for report in reports:
        if not report.exists():
            print(f"{report.name}: pytest left no report")
            continue
        for text in failures(report):
            print(f"{report.name}: {text}")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
