"""The alerts about the operator itself: manifests/monitoring/rules.yaml."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from hack.world import settings

pytestmark = pytest.mark.rules

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "manifests" / "monitoring" / "rules.yaml"
CASES = Path(__file__).parent / "operator.yaml"


def test_alerts_about_the_operator_fire_as_expected(tmp_path: Path) -> None:
    promtool = shutil.which("promtool", path=settings.search_path())
    assert promtool, "these tests need promtool; skip them with -m 'not rules'"
    rules, tests = tmp_path / "rules.yaml", tmp_path / "tests.yaml"
    rules.write_text(yaml.safe_dump(yaml.safe_load(MANIFEST.read_text())["spec"]))
    tests.write_text(yaml.safe_dump({"rule_files": [rules.name], **yaml.safe_load(CASES.read_text())}))
    result = subprocess.run([promtool, "test", "rules", str(tests)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
