"""Each contract of import-linter refuses an import against it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
DECIDES = "Decisions: a snapshot"
REPORTS = "reconcile: look, decide, do, report"
GOES_ONE_WAY = "The operator's dependencies go one way"
PURE = "Decisions are pure"
SENDS_NO_REQUEST = "sends no request"
VIOLATIONS = [
    ("what runs in pods nothing of both", "triton_repository_check/text.py", "triton_operator.api.names"),
    ("what runs in pods nothing of both", "triton_operator/api/names.py", "kubectl_triton.parsing"),
    ("what runs in pods nothing of both", "answer_comparison/comparer.py", "triton_operator.api.names"),
    ("what runs in pods nothing of both", "latency_sampler/sampler.py", "triton_operator.api.names"),
    ("what runs in pods nothing of both", "process_exporter/usage.py", "latency_sampler.series"),
    ("what runs in pods nothing of both", "metrics_page/__init__.py", "latency_sampler.series"),
    ("The plugin's commands", "kubectl_triton/status/show.py", "kubectl_triton.top.view"),
    ("The plugin's commands", "kubectl_triton/top/view.py", "kubectl_triton.explain.chart"),
    ("The plugin's commands", "kubectl_triton/a_new_command.py", "kubectl_triton.options"),
    ("A trial: the order", "kubectl_triton/trial/requests.py", "kubectl_triton.trial.sender"),
    ("A trial: the order", "kubectl_triton/trial/a_new_module.py", "kubectl_triton.trial.outcome"),
    (GOES_ONE_WAY, "triton_operator/api/names.py", "triton_operator.render.common"),
    (GOES_ONE_WAY, "triton_operator/status/assess.py", "triton_operator.probe.triton"),
    (GOES_ONE_WAY, "triton_operator/a_new_package/module.py", "triton_operator.api.names"),
    ("Engines: a descriptor", "triton_operator/engines/hpa.py", "triton_operator.engines.keda"),
    ("Engines: a descriptor", "triton_operator/engines/a_new_engine.py", "triton_operator.engines.engine"),
    (DECIDES, "triton_operator/decisions/memory.py", "triton_operator.decisions.decide"),
    (DECIDES, "triton_operator/decisions/a_new_policy.py", "triton_operator.decisions.snapshot"),
    (REPORTS, "triton_operator/reconcile/read_snapshot.py", "triton_operator.reconcile.write_children"),
    (REPORTS, "triton_operator/reconcile/a_new_step.py", "triton_operator.reconcile.evict"),
    (PURE, "triton_operator/decisions/decide.py", "triton_operator.cluster.store"),
    (PURE, "triton_operator/decisions/snapshot.py", "triton_operator.probe.triton"),
    # Not at first hand.
    (PURE, "triton_operator/decisions/contests.py", "triton_operator.reconcile.refusals"),
    (PURE, "triton_operator/scaling/decision.py", "time"),
    (PURE, "triton_repository_check/text.py", "asyncio"),
    (PURE, "answer_comparison/answers.py", "asyncio"),
    (PURE, "latency_sampler/sampling.py", "time"),
    (PURE, "process_exporter/usage.py", "time"),
    (SENDS_NO_REQUEST, "triton_operator/reconcile/read_snapshot.py", "triton_operator.cluster.nodes"),
    (SENDS_NO_REQUEST, "triton_operator/decisions/snapshot.py", "triton_operator.cluster.api"),
    (SENDS_NO_REQUEST, "triton_operator/reconcile/read_snapshot.py", "triton_operator.status.assess"),
    ("imports kopf", "triton_operator/runtime/app.py", "kopf"),
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    shutil.copytree(ROOT / "operator", folder / "operator", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def broken(sources: Path) -> str:
    """Returns what import-linter prints if it refuses the imports; "" if it doesn't."""
    linter = Path(sys.executable).parent / "lint-imports"
    run = subprocess.run(
        [str(linter)], cwd=sources, env={**os.environ, "PYTHONPATH": "operator"}, capture_output=True, text=True
    )
    return run.stdout + run.stderr if run.returncode else ""


def test_each_contract_is_violated_here() -> None:
    names = [contract["name"] for contract in CONTRACTS]
    assert [name for name in names if not any(words in name for words, _, _ in VIOLATIONS)] == []


def test_the_sources_keep_all_contracts(sources: Path) -> None:
    assert broken(sources) == ""


@pytest.mark.parametrize(("contract", "path", "module"), VIOLATIONS)
def test_refuses(sources: Path, contract: str, path: str, module: str) -> None:
    file = sources / "operator" / path
    before = file.read_bytes() if file.exists() else None
    file.parent.mkdir(exist_ok=True)
    (file.parent / "__init__.py").touch()
    file.write_bytes((before or b"") + f"\nimport {module}\n".encode())
    try:
        words = broken(sources)
    finally:
        if before is not None:
            file.write_bytes(before)
        elif file.parent.name.startswith("a_new"):
            shutil.rmtree(file.parent)
        else:
            file.unlink()
    assert [line for line in words.splitlines() if contract in line and " BROKEN" in line], words
