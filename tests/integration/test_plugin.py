"""The krew plugin of a release, as a user runs it: unpacked, with nothing but python3 on PATH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.release import project
from support import released
from support.cluster import ROOT

pytestmark = pytest.mark.release

PIP = ("PIP_", "SSL_CERT", "HTTPS_PROXY", "https_proxy")


def test_the_plugin_runs_after_unpacking_with_python_alone(tmp_path: Path) -> None:
    dist = released.make(tmp_path)
    store = released.unpack(dist / f"kubectl-triton-{project.version()}.tar.gz", tmp_path / "store")
    # krew links the program into a folder on PATH.
    path = tmp_path / "bin"
    path.mkdir()
    (path / "kubectl-triton").symlink_to(store / "kubectl-triton")
    (path / "python3").symlink_to(Path(sys.executable).resolve())
    settings = {name: value for name, value in os.environ.items() if name.startswith(PIP)}
    # A package on PYTHONPATH must not replace one of the plugin.
    (tmp_path / "click.py").write_text("raise SystemExit('the wrong click')")
    plain = {"PATH": str(path), "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}

    def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        env, command = {**plain, **variables}, [path / "kubectl-triton", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)

    result = run("--version", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert result.returncode == 1
    assert "can't install its packages; check pip's index" in result.stderr
    assert not list(store.glob("venv-*")), "nothing is left of the venv"

    result = run("--help", **settings)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Usage: kubectl triton ")
    # The next runs need no network and print nothing else.
    result = run("--version", PIP_NO_INDEX="1")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{project.version()}\n", "")
    result = run("validate", ROOT / "model_images" / "detection" / "repository")
    assert (result.returncode, "4 models, 0 errors" in result.stdout) == (0, True), result.stdout + result.stderr
    # This command imports gRPC, and the client of Kubernetes.
    result = run("models", "detector", KUBECONFIG=str(tmp_path / "none"))
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
