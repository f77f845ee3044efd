"""Makes a release in a folder, as `make release` does, without images; and uses the files of a release."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from hack.world import settings

from .cluster import ROOT

OPERATOR = re.compile(r"ghcr\.io/triton-operator/operator:[\w.-]+")
"""The operator's image in install.yaml."""

PASSWORD = "of the key"

OTHER_PODS = """
from triton_operator.render import deployment

rendered = deployment._pod_spec
deployment._pod_spec = lambda *a: {**rendered(*a), "hostname": "newer"}
"""
"""A sitecustomize.py. With it, the operator renders other pods, as a later release may."""


def make(folder: Path) -> Path:
    """Makes a release and a throw-away key, and returns the folder of the release. `release.pub` is beside it."""
    key, public = folder / "release.pem", folder / "release.pub"
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
    openssl("ec", "-in", key, "-pubout", "-out", public)
    return _make(folder / "dist", key)


def make_with_cosign(folder: Path) -> Path:
    """Makes the same release, with a key of cosign's. `cosign.key` is beside it, too; its password is PASSWORD."""
    env = {**os.environ, "PATH": settings.search_path(), "COSIGN_PASSWORD": PASSWORD}
    subprocess.run(["cosign", "generate-key-pair"], cwd=folder, env=env, check=True, capture_output=True)
    (folder / "cosign.pub").rename(folder / "release.pub")
    return _make(folder / "dist", folder / "cosign.key", COSIGN_PASSWORD=PASSWORD)


def _make(target: Path, key: Path, **env: str) -> Path:
    options = ("--dirty", "--no-images", f"--out={target}", f"--key={key}")
    command = [ROOT / ".venv/bin/python", "-m", "hack.release", *options]
    result = subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return target


def make_former(commit: str, folder: Path) -> Path:
    """Makes the release of an earlier commit with that commit's own program, and returns its folder.

    The sources of the commit are in `folder/sources`. The packages are those of this checkout's .venv.
    """
    sources, target = folder / "sources", folder / "dist"
    subprocess.run(["git", "clone", "--quiet", "--shared", "--no-checkout", ROOT, sources], check=True)
    subprocess.run(["git", "checkout", "--quiet", commit], cwd=sources, check=True)
    (sources / ".venv").symlink_to((ROOT / ".venv").resolve())
    command = [ROOT / ".venv/bin/python", "-m", "hack.release", "--dirty", "--no-images", f"--out={target}"]
    paths = {"PYTHONPATH": f"{sources / 'operator'}:{sources}"}
    result = subprocess.run(
        command, cwd=sources, env={**os.environ, **paths}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"the release of {commit}: {result.stderr}"
    return target


def load_image(archive: Path) -> str:
    """Loads an image from a release's archive into Docker, and returns its name."""
    result = subprocess.run(["docker", "load", f"--input={archive}"], capture_output=True, text=True, check=True)
    return result.stdout.strip().rpartition("Loaded image: ")[2]


def with_image(install: str, image: str) -> str:
    """Returns the text of an install.yaml with another image of the operator."""
    return OPERATOR.sub(image, install)


def openssl(*arguments: str | Path) -> bool:
    """Returns whether openssl succeeds."""
    return subprocess.run(["openssl", *arguments], capture_output=True, check=False).returncode == 0


def unpack(archive: Path, folder: Path) -> Path:
    """Unpacks a tar.gz and returns the folder."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
    return folder
