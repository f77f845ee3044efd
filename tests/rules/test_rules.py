"""The rendered rules, evaluated by promtool on the series in tests/rules/cases."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.world import settings
from rules.case import Case, document, load
from support import gen
from triton_operator.render.choices import Choices
from triton_operator.render.prometheus_rule import prometheus_rule

pytestmark = pytest.mark.rules

CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))

UNUSUAL_NAMES = [
    "plain",
    'quote"d',
    "back\\slash",
    "trailing\\",
    "it's",
    "`tick`",
    "{{ $value }}",
    "$1",
    "%s",
    "ü–☃",
    "a\x01b",
]
VARIANTS: dict[str, dict[str, Any]] = {
    "minimal": {},
    "no-alerts": {"monitoring": {"alerts": False}},
    "tokens": {"monitoring": {"tokenCounter": "made:tokens_total"}},
    "scaling": {"autoscaling": {"max": 8, "predict": True, "utilization": 0.6}},
    "slow": {"monitoring": {"scrapeSeconds": 300, "evaluationSeconds": 300}},
    "loose": {"monitoring": {"objective": "50"}},
    "labels": {"monitoring": {"alertLabels": {"team": "{{ vision", "not-a-label": "x", "severity": "none"}}},
}


@pytest.fixture(scope="session")
def promtool() -> str:
    found = shutil.which("promtool", path=settings.search_path())
    assert found, "these tests need promtool; skip them with -m 'not rules'"
    return found


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_rules_evaluate_as_the_case_expects(path: Path, promtool: str, tmp_path: Path) -> None:
    case = load(path)
    rules = write(tmp_path / "rules.yaml", rendered(case))
    tests = write(tmp_path / "tests.yaml", document(case, rules.name))
    done = subprocess.run([promtool, "test", "rules", str(tests)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("ensemble", [False, True], ids=["model", "ensemble"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_rules_are_valid_for_any_model_name(variant: str, ensemble: bool, promtool: str, tmp_path: Path) -> None:
    model = gen.model(**VARIANTS[variant])
    files = []
    for place, name in enumerate(["", *UNUSUAL_NAMES]):
        rule = prometheus_rule(model, Choices("operator:1", "Copy", entrypoint=name, ensemble=ensemble))
        files.append(str(write(tmp_path / f"{place}.yaml", rule["spec"])))
    done = subprocess.run([promtool, "check", "rules", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def rendered(case: Case) -> dict[str, Any]:
    spec = prometheus_rule(gen.model(**case.spec), case.choices)["spec"]
    assert isinstance(spec, dict)
    return spec


def write(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(content, allow_unicode=True))
    return path
