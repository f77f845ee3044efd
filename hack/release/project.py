"""What the release is made from: the version, the commit, and the objects of the manifests."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import yaml

from hack.world import settings

Object = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
HOME = "https://github.com/triton-operator/triton-operator"
IMAGES = "ghcr.io/triton-operator"
# Semantic Versioning, without the rarely used build metadata.
_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")


class ReleaseError(Exception):
    """The release can't be made. The message names the reason and what to do."""


def version() -> str:
    """Returns the version in pyproject.toml, the only place where a person writes it."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def check(release_version: str, *, dirty: bool) -> None:
    """Raises ReleaseError if this checkout isn't that of the version.

    - `dirty`: allows changes that aren't committed, for a try.
    """
    if not _VERSION.fullmatch(release_version):
        raise ReleaseError(f"{release_version!r} isn't a semantic version such as 0.2.0")
    if release_version != version():
        raise ReleaseError(
            f"pyproject.toml has the version {version()}. "
            f"Write {release_version} there, run `make generate`, and commit it"
        )
    stale = subprocess.run(
        [ROOT / ".venv/bin/python", ROOT / "hack/generate.py", "--check"], capture_output=True, text=True, check=False
    )
    if stale.returncode:
        raise ReleaseError(f"generated files are stale: {stale.stderr.strip()}")
    if not dirty and git("status", "--porcelain"):
        raise ReleaseError("the checkout has changes that aren't committed; --dirty makes a release for a try anyway")


def git(*arguments: str) -> str:
    """Returns the output of a git command in this checkout."""
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def time() -> int:
    """Returns the time of the commit, for all files of the release, so that it can be repeated byte by byte."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct"))


def kustomized(folder: str) -> str:
    """Returns the objects of a folder below manifests/, as `kubectl kustomize` writes them."""
    result = subprocess.run(
        ["kubectl", "kustomize", MANIFESTS / folder], capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": settings.search_path()},
    )  # fmt: skip
    if result.returncode:
        raise ReleaseError(f"kubectl kustomize {folder}: {result.stderr.strip()}")
    return result.stdout


def objects(text: str) -> list[Object]:
    """Returns the objects of YAML documents."""
    return [obj for obj in yaml.safe_load_all(text) if obj]
