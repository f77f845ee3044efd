"""Models that can't change while their server runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from triton_operator.in_place.obstacles import obstacle
from triton_operator.repository.load import load
from triton_operator.repository.model import Repository

TENSORS = " ".join(f'{kind} [ {{ name: "x" data_type: TYPE_INT32 dims: [ 1 ] }} ]' for kind in ("input", "output"))
STEP = 'step [ { model_name: "NAME" model_version: -1 } ]'


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    configs = {
        "plain": f'backend: "python" {TENSORS}',
        "open": 'backend: "python"',
        "pipe": f"ensemble_scheduling {{ {STEP.replace('NAME', 'open')} }}",
        "cached": 'backend: "python" response_cache { enable: true }',
        "inner": f"ensemble_scheduling {{ {STEP.replace('NAME', 'plain')} }}",
        "outer": f"ensemble_scheduling {{ {STEP.replace('NAME', 'inner')} }}",
    }
    for name, text in configs.items():
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text(text)
    return load(tmp_path)[0]


@pytest.mark.parametrize(("model", "live", "ready", "words"), [
    ("plain", {"backend": "python"}, "plain inner outer", ""),
    ("plain", {}, "", ""),
    ("outer", {"ensemble_scheduling": {"step": []}}, "plain inner outer", ""),
    ("gone", {"backend": "python"}, "gone", ""),
    ("plain", {"sequence_batching": {"oldest": {}}}, "plain", "its open sequences would be lost"),
    ("outer", {"backend": "python"}, "plain inner outer", "outer becomes an ensemble"),
    ("plain", {"ensemble_scheduling": {"step": []}}, "plain", "plain is no longer an ensemble"),
    ("outer", {"ensemble_scheduling": {"step": []}}, "inner outer", "outer needs plain, which isn't loaded"),
    ("plain", {"backend": "python"}, "cached plain", "cached has a response cache"),
    ("cached", {"backend": "python"}, "cached plain", "cached has a response cache"),
    ("plain", {"backend": "python"}, "plain outside", ""),
    ("open", {"backend": "python"}, "open", ""),
    ("open", {"backend": "python"}, "open pipe", "open is a step of pipe, and Triton knows only after a load"),
])  # fmt: skip
def test_says_why_a_model_needs_new_servers(
    repository: Repository, model: str, live: dict[str, Any], ready: str, words: str
) -> None:
    found = obstacle(model, live, repository, ready.split())
    assert words in found
    assert bool(found) == bool(words)
