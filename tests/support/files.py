"""Finds files of the repository."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Set
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def named(pattern: str, elsewhere: Set[str]) -> list[Path]:
    """Returns the files whose names match, in all folders but those with a name in `elsewhere`.

    Unlike rglob it doesn't enter these folders: other processes make and remove files there, at which rglob can fail.
    """
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(set(folders) - elsewhere)
        found += [Path(folder) / name for name in files if fnmatch.fnmatch(name, pattern)]
    return sorted(found)
