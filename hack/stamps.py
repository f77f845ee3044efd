"""Writes the project's version, which only pyproject.toml contains, into the files that name released images."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("manifests", "operator", "docs", "examples", "README.md")
_PLACES = [
    re.compile(r"(ghcr\.io/triton-operator/[a-z-]+:)\d[\w.-]*\w"),
    # The override of an image in a kustomization.
    re.compile(r"(- name: ghcr\.io/triton-operator/operator\n  newTag: )\S+"),
    re.compile(r"(REGISTRY/perf-analyzer:)\d[\w.-]*\w"),
    re.compile(r"(\nVERSION=)\d+\.\d+\.\S+"),
    re.compile(r"(\n +VERSION: )\d+\.\d+\.\S+"),
]


def files() -> dict[Path, str]:
    """Returns the text of each file that contains the version, by path."""
    version = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
    texts = {}
    for name in _tracked():
        text = (ROOT / name).read_text()
        if any(place.search(text) for place in _PLACES):
            texts[Path(name)] = stamped(text, version)
    return texts


def stamped(text: str, version: str) -> str:
    """Returns the text with this version in the names of released images."""
    for place in _PLACES:
        text = place.sub(rf"\g<1>{version}", text)
    return text


def _tracked() -> list[str]:
    command = ["git", "ls-files", "--", *FOLDERS]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in names if name.endswith((".yaml", ".py", ".md"))]
