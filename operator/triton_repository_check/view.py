"""Writes a view of a model repository: links to its files, with other configurations of some models."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from triton_repository_check.text import one_line

REPOSITORY = "/.triton-operator/repository"
"""Where a server that has a view has the repository, to which the view's links lead."""
_CONFIG = "config.pbtxt"


def write(source: Path, target: Path, links_to: str, configs: Mapping[str, str]) -> None:
    """Replaces the content of the directory `target` by a view of the repository in `source`.

    The view has a link for each entry of the repository. A model in `configs`, by its directory, is a directory with
    its own config.pbtxt, and a link for each other entry. Links of the repository are never written to: the view has
    only links to them. `links_to`: the path of `source` for the reader of the view. Raises OSError.
    """
    _clear(target)
    for name in os.listdir(source):  # noqa: PTH208 - names are wanted, not paths
        content = configs.get(one_line(name))
        if content is None:
            (target / name).symlink_to(f"{links_to}/{_place(source, name)}")
            continue
        (target / name).mkdir()
        for inner in os.listdir(source / name):  # noqa: PTH208
            if inner != _CONFIG:
                (target / name / inner).symlink_to(f"{links_to}/{name}/{inner}")
        (target / name / _CONFIG).write_text(content, encoding="utf-8")
        # The server may have another user, whatever the umask of this process is.
        (target / name).chmod(0o755)
        (target / name / _CONFIG).chmod(0o644)


def _place(source: Path, name: str) -> str:
    """Returns where an entry is in the repository.

    An absolute link to another model would lead the reader to the model in the view, which may be changed.
    """
    root, place = os.path.realpath(source), os.path.realpath(source / name)
    return place.removeprefix(f"{root}/") if place.startswith(f"{root}/") else name


def _clear(target: Path) -> None:
    """Removes the content of a directory, which an earlier start of the container may have left. Follows no link."""
    for entry in target.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
