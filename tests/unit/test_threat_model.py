"""Checks docs/threat-model.md: each row names a test, and the tests exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)


def test_every_named_test_exists() -> None:
    assert len(NAMED) > 20
    for file, name in NAMED:
        path = ROOT / file
        assert path.is_file(), file
        assert not name or f"def {name}(" in path.read_text(), f"{file}::{name}"


def test_every_threat_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| Threat", "|---"))]
    assert len(rows) >= 20
    for row in rows:
        assert re.search(r"`tests/[\w/]+\.py::\w+`", row.split("|")[3]), row
