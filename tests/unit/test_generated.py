"""The generated files in the repository are up to date and complete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hack import environment

ROOT = Path(__file__).parents[2]


HOSTILE = {
    "TERM": "dumb", "COLUMNS": "13", "LINES": "3", "NO_COLOR": "1", "CLICOLOR": "0", "LANG": "de_DE.ISO-8859-1",
    "LC_ALL": "C", "TZ": "Asia/Kathmandu", "KUBECONFIG": "/nowhere", "GIT_DIR": "/nowhere", "BASH_ENV": "/nowhere",
    "GIT_CONFIG_GLOBAL": "/nowhere", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONOPTIMIZE": "2",
    "PYTHONWARNINGS": "error", "PYTHONIOENCODING": "latin-1", "PYTHONHASHSEED": "7", "PYTHONPATH": "/nowhere",
    "CDPATH": "/", "http_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9",
    "PYTEST_ADDOPTS": "--nonsense",
}  # fmt: skip
"""An environment as no developer has it. The settings of our scripts are not in it."""


@pytest.mark.parametrize("environ", [{}, HOSTILE], ids=["ours", "hostile"])
def test_generated_files_are_up_to_date(environ: dict[str, str]) -> None:
    result = subprocess.run(
        [sys.executable, "hack/generate.py", "--check"],
        cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


def test_scripts_and_tests_see_the_same_environment_for_every_caller() -> None:
    """Proxies stay for downloads, but no request to this machine goes there."""
    look = ". hack/lib.sh; umask; cd tests; env -0"
    umask = 0o022
    environments = []
    for environ in ({}, HOSTILE):
        result = subprocess.run(
            ["bash", "-c", look, "hack/look.sh"],
            cwd=ROOT, env={"PATH": os.environ["PATH"], "HOME": "/tmp/nobody", **environ}, umask=0o077,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        mask, _, variables = result.stdout.partition("\n")
        assert int(mask, 8) == umask
        environments.append(dict(line.split("=", 1) for line in variables.split("\0") if line))
    clean, hostile = environments
    proxies = {"http_proxy", "HTTPS_PROXY"}
    assert hostile.keys() - clean.keys() == proxies
    assert {name: value for name, value in hostile.items() if name not in proxies} == clean
    # The scripts set their own kubeconfig.
    assert environment.clean(clean) == {name: value for name, value in clean.items() if name != "KUBECONFIG"}
    assert environment.clean({"PATH": "/bin", **HOSTILE}).keys() == environment.clean({"PATH": "/bin"}).keys() | proxies
    assert all(clean[name].endswith("localhost,127.0.0.1,::1") for name in ("NO_PROXY", "no_proxy"))


@pytest.mark.parametrize("folder", ["crds", "manifests/operator", "manifests/policies", "manifests/rbac"])
def test_every_manifest_of_the_installation_is_in_its_kustomization(folder: str) -> None:
    """An installation would leave out a policy that isn't listed."""
    listed = yaml.safe_load((ROOT / folder / "kustomization.yaml").read_text())["resources"]
    existing = {p.name for p in (ROOT / folder).glob("*.yaml")} - {"kustomization.yaml"}
    assert sorted(listed) == sorted(existing)
