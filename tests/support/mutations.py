"""Changes to a directory on disk, to be made in order: what spoils a model repository, or completes it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

Change = Callable[[Path], object]
"""Changes what is below a directory."""


def write(file: str, text: str | bytes) -> Change:
    """Puts a file there, with its directories."""

    def change(root: Path) -> None:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    return change


def add(file: str, text: str) -> Change:
    """Appends to a file."""

    def change(root: Path) -> None:
        (root / file).write_text((root / file).read_text() + text)

    return change


def edit(file: str, old: str, new: str) -> Change:
    """Replaces `old`, which must occur once."""

    def change(root: Path) -> None:
        text = (root / file).read_text()
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {file}"
        (root / file).write_text(text.replace(old, new))

    return change


def move(source: str, target: str) -> Change:
    """Renames a file or directory."""
    return lambda root: (root / source).rename(root / target)


def remove(path: str) -> Change:
    """Takes a file or directory away."""

    def change(root: Path) -> None:
        target = root / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()

    return change


def empty(path: str) -> Change:
    """Takes all files out of a directory, as git does."""

    def change(root: Path) -> None:
        shutil.rmtree(root / path)
        (root / path).mkdir()

    return change


def folder(path: str) -> Change:
    """Makes an empty directory."""
    return lambda root: (root / path).mkdir(parents=True)


def forbid(path: str) -> Change:
    """Takes all permissions away."""
    return lambda root: (root / path).chmod(0)
