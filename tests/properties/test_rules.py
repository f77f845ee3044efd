"""Prometheus accepts the rules of any TritonModel. An invalid rule could block the rules of other TritonModels."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hack.world import settings
from support import gen, specs
from support.profiles import batches
from triton_operator.render import Facts, render

pytestmark = pytest.mark.rules

_MONITORING = specs.admitted(specs.schema("spec", "monitoring")).map(
    lambda monitoring: specs.lawful({"monitoring": monitoring})["monitoring"]
)
_SPECS = st.lists(st.tuples(_MONITORING, specs.TEXT, st.booleans()), max_size=8)


def groups(monitoring: dict[str, Any], entrypoint: str, ensemble: bool, number: int = 0) -> list[Any]:
    model = gen.model(gen.put("metadata.name", f"model-{number}"), monitoring={**monitoring, "enabled": True})
    objects = render(model, Facts("tools", "Copy", entrypoint=entrypoint or "detection", ensemble=ensemble))
    return next(list(o["spec"]["groups"]) for o in objects if o["kind"] == "PrometheusRule")


def check_rules(folder: Path, groups_to_check: list[Any]) -> str:
    """Returns the error of `promtool check rules`, or "" if the rules are valid."""
    program = shutil.which("promtool", path=settings.search_path())
    assert program, "these tests need promtool: run hack/world.sh rules"
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups_to_check}))
    result = subprocess.run(
        [program, "check", "rules", folder / "rules.yaml"], capture_output=True, text=True, check=False
    )
    return result.stderr if result.returncode else ""


@batches(12)
@given(_SPECS)
def test_rules_of_any_spec_are_valid(tmp_path_factory: pytest.TempPathFactory, generated: list[Any]) -> None:
    rule_groups = [group for number, arguments in enumerate(generated) for group in groups(*arguments, number)]
    assert check_rules(tmp_path_factory.mktemp("rules"), rule_groups) == "", generated


@pytest.mark.parametrize("counter", ["nan", "Inf", "on", "bool", "atan2", "group_left", "ignoring", "sum", "tokens"])
def test_rules_are_valid_for_any_counter_name(tmp_path: Path, counter: str) -> None:
    """Keywords of PromQL are valid metric names."""
    assert check_rules(tmp_path, groups({"tokenCounter": counter}, "a", True)) == ""


@pytest.mark.parametrize("label", ["__name__", "__meta", "le", "quantile", "severity", "alertname"])
def test_rules_are_valid_for_any_alert_label(tmp_path: Path, label: str) -> None:
    assert check_rules(tmp_path, groups({"alertLabels": {label: "{{ x"}}, "a", False)) == ""
