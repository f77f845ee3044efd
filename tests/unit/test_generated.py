"""The generated files in the repository are up to date and complete."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def test_generated_files_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "hack/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("folder", ["crds", "manifests/operator", "manifests/policies", "manifests/rbac"])
def test_every_manifest_of_the_installation_is_in_its_kustomization(folder: str) -> None:
    """An installation would leave out a policy that isn't listed."""
    listed = yaml.safe_load((ROOT / folder / "kustomization.yaml").read_text())["resources"]
    existing = {p.name for p in (ROOT / folder).glob("*.yaml")} - {"kustomization.yaml"}
    assert sorted(listed) == sorted(existing)
