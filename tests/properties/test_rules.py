"""The rules of any TritonModel can be read by Prometheus: one that it can't read may keep out those of others."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from support import gen, specs
from support.profiles import batches
from triton_operator.render import Choices, render

pytestmark = pytest.mark.rules

_SPECS = st.lists(st.tuples(specs.admitted(specs.schema("spec", "monitoring")), specs.TEXT, st.booleans()), max_size=8)


def groups(monitoring: dict[str, Any], entrypoint: str, ensemble: bool, number: int = 0) -> list[Any]:
    model = gen.model(gen.put("metadata.name", f"model-{number}"), monitoring={**monitoring, "enabled": True})
    found = render(model, Choices("tools", "Copy", entrypoint=entrypoint or "detection", ensemble=ensemble))
    return next(list(o["spec"]["groups"]) for o in found if o["kind"] == "PrometheusRule")


def read(folder: Path, wanted: list[Any]) -> str:
    """What Prometheus' own reader has against it; "" for nothing."""
    program = shutil.which("promtool")
    assert program, "these tests need promtool: make tools"
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": wanted}))
    done = subprocess.run(
        [program, "check", "rules", folder / "rules.yaml"], capture_output=True, text=True, check=False
    )
    return done.stderr if done.returncode else ""


@batches(12)
@given(_SPECS)
def test_any_rules_can_be_read(tmp_path_factory: pytest.TempPathFactory, wanted: list[Any]) -> None:
    found = [group for number, one in enumerate(wanted) for group in groups(*one, number)]
    assert read(tmp_path_factory.mktemp("rules"), found) == "", wanted


@pytest.mark.parametrize("counter", ["nan", "Inf", "on", "bool", "atan2", "group_left", "ignoring", "sum", "tokens"])
def test_a_counter_of_any_name_can_be_read(tmp_path: Path, counter: str) -> None:
    """Words of PromQL are names of metrics, too."""
    assert read(tmp_path, groups({"tokenCounter": counter}, "a", True)) == ""


@pytest.mark.parametrize("label", ["__name__", "__meta", "le", "quantile", "severity", "alertname"])
def test_alert_labels_spoil_no_rule(tmp_path: Path, label: str) -> None:
    assert read(tmp_path, groups({"alertLabels": {label: "{{ x"}}, "a", False)) == ""
