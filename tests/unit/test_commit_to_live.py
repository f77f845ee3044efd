"""The example pipeline: the variables of the workflow files, Podman, and a rollout that fails.

Programs that answer with fixed texts stand in for Podman and kubectl. tests/e2e/test_commit_to_live.py has real ones.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

EXAMPLE = Path(__file__).parents[2] / "examples" / "commit-to-live"
DIGEST = "sha256:" + "ab" * 32
PROGRAMS = {
    "podman": f'#!/bin/sh\nif [ "$1" = push ]; then [ "$2" = --digestfile ] && printf %s {DIGEST} >"$3"; fi\n',
    "kubectl": """#!/bin/sh
echo "$*" >>"$CALLS"
case "$*" in
  "triton status"*) exit "$RESULT" ;;
  *" get tritonmodel"*) printf registry.example.com/former@sha256:1 ;;
esac
""",
}


def run(folder: Path, result: int = 0, **variables: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Runs the script, and returns it with the calls of kubectl. `result`: exit status of `kubectl triton status`."""
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    calls = folder / "calls"
    env = {
        "PATH": f"{folder}:{os.environ['PATH']}", "CALLS": str(calls), "RESULT": str(result), "BUILDER": "podman",
        "MODEL": "detector", "IMAGE": "registry.example.com/new", "NAMESPACE": "vision", **variables,
    }  # fmt: skip
    command = ["sh", EXAMPLE / "deploy.sh", folder]
    process = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    return process, calls.read_text().splitlines() if calls.exists() else []


def test_podman_writes_the_digest_that_the_tritonmodel_gets(tmp_path: Path) -> None:
    process, calls = run(tmp_path)
    assert process.returncode == 0, process.stderr
    assert [c for c in calls if "patch" in c] == [
        "--namespace=vision patch tritonmodel detector --type=merge "
        f'-p {{"spec": {{"modelImage": {{"reference": "registry.example.com/new@{DIGEST}"}}}}}}'
    ]
    assert calls[-1] == "triton status detector --namespace=vision --watch --timeout 600"


@pytest.mark.parametrize("result", [1, 2])
def test_a_failed_rollout_ends_with_its_status_and_the_command_that_goes_back(tmp_path: Path, result: int) -> None:
    process, _ = run(tmp_path, result)
    assert process.returncode == result
    command = process.stderr.splitlines()[-1]
    assert command.startswith("kubectl --namespace=vision patch tritonmodel detector")
    assert "registry.example.com/former@sha256:1" in command


def test_an_unset_variable_is_named_before_anything_runs(tmp_path: Path) -> None:
    process, calls = run(tmp_path, IMAGE="")
    assert (process.returncode != 0, calls) == (True, [])
    assert "set IMAGE to the repository of the image" in process.stderr


@pytest.mark.parametrize("file", ["github-actions.yaml", "gitlab-ci.yaml"])
def test_the_workflows_run_the_script_with_its_variables(file: str) -> None:
    text = (EXAMPLE / file).read_text()
    variables = set(re.findall(r"^#   ([A-Z_]+) ", (EXAMPLE / "deploy.sh").read_text(), re.MULTILINE))
    document: Any = yaml.safe_load(text)
    assert "sh detector/deploy.sh detector" in text
    assert variables >= {"MODEL", "IMAGE", "NAMESPACE"}
    for name in ("MODEL", "IMAGE", "NAMESPACE"):
        assert re.search(rf"^ +{name}: \S", text, re.MULTILINE), name
    assert document
