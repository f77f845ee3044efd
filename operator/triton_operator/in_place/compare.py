"""Compares the models of two repositories by their files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 1 << 20


class NewServersError(Exception):
    """The change needs new servers. The message says why."""


@dataclass(frozen=True)
class Difference:
    """The loaded model whose files differ, "" if none does, and the size of its new files relative to the old ones."""

    model: str = ""
    growth: float = 1.0


def difference(old: Path, new: Path, loaded: Iterable[str]) -> Difference:
    """Returns the only loaded model that differs. Raises NewServersError if there are several, or if one is gone.

    Files outside of models count as a part of every model. A link out of a model needs new servers, because what it
    points to may have changed.
    """
    names, changed = set(loaded), list[str]()
    for entry in sorted(entry.name for entry in old.iterdir()):
        one, other = old / entry, new / entry
        if entry not in names and _is_model(one):
            continue
        if entry in names and not other.is_dir():
            raise NewServersError(f"the new image doesn't have the loaded model {entry}")
        if entry in names and (link := _outward(one) or _outward(other)):
            raise NewServersError(f"{link} is a link out of the model {entry}, and what it points to may have changed")
        if _same(one, other):
            continue
        if entry not in names:
            raise NewServersError(f"{entry} differs, which is outside of the models, and any model may use it")
        changed.append(entry)
    if len(changed) > 1:
        raise NewServersError(
            f"{len(changed)} loaded models differ ({', '.join(changed[:5])}), and requests would see a mixture of them"
        )
    if not changed:
        return Difference()
    return Difference(changed[0], _size(new / changed[0]) / max(_size(old / changed[0]), 1))


def _is_model(path: Path) -> bool:
    """Returns whether the directory looks like a model that the server hasn't loaded."""
    return (path / "config.pbtxt").exists() or (
        path.is_dir() and any(child.name.isdecimal() and child.is_dir() for child in path.iterdir())
    )


def _outward(model: Path) -> str:
    """Returns the first link in the model that points out of it; "" if there is none."""
    if model.is_symlink():
        return model.name
    root = model.resolve()
    for name, path in _entries(model):
        if path.is_symlink() and not _within(root, path):
            return f"{model.name}/{name}"
    return ""


def _within(root: Path, path: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # a loop of links
        return False


def _same(one: Path, other: Path) -> bool:
    entries = dict(_entries(one)), dict(_entries(other))
    if entries[0].keys() != entries[1].keys():
        return False
    return all(_same_entry(path, entries[1][name]) for name, path in entries[0].items())


def _same_entry(one: Path, other: Path) -> bool:
    if one.is_symlink() or other.is_symlink():
        return one.is_symlink() and other.is_symlink() and one.readlink() == other.readlink()
    if one.is_dir() and other.is_dir():
        return True
    if not (one.is_file() and other.is_file()) or one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as left, other.open("rb") as right:
        while block := left.read(_BLOCK):
            if block != right.read(_BLOCK):
                return False
    return True


def _entries(root: Path) -> Iterator[tuple[str, Path]]:
    """Yields `root` and each file and directory below it, with its relative path. Follows no link.

    Directories count, because the version of an ensemble may be an empty one.
    """
    if not root.is_symlink() and not root.exists():
        return
    yield "", root
    if root.is_symlink() or not root.is_dir():
        return
    for directory, folders, files in os.walk(root):
        for name in (*files, *folders):
            path = Path(directory, name)
            yield str(path.relative_to(root)), path


def _size(root: Path) -> int:
    return sum(path.lstat().st_size for _, path in _entries(root) if path.is_symlink() or not path.is_dir())
