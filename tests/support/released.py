"""Makes a release in a folder, as `make release` does, without images."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .cluster import ROOT


def make(folder: Path) -> Path:
    """Makes a release and a throw-away key, and returns the folder of the release. `release.pub` is beside it."""
    key, public, target = folder / "release.pem", folder / "release.pub", folder / "dist"
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
    openssl("ec", "-in", key, "-pubout", "-out", public)
    options = ("--dirty", "--no-images", f"--out={target}", f"--key={key}")
    command = [ROOT / ".venv/bin/python", "-m", "hack.release", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def openssl(*arguments: str | Path) -> bool:
    """Returns whether openssl succeeds."""
    return subprocess.run(["openssl", *arguments], capture_output=True, check=False).returncode == 0


def unpack(archive: Path, folder: Path) -> Path:
    """Unpacks a tar.gz and returns the folder."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
    return folder
