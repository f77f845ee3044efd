"""Changes to a directory, to break or complete a model repository."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

Change = Callable[[Path], object]
"""Changes the contents of a directory."""


def write(file: str, text: str | bytes) -> Change:
    """Writes a file, and creates its directories."""

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
    """Replaces `old`, which must occur exactly once."""

    def change(root: Path) -> None:
        text = (root / file).read_text()
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {file}"
        (root / file).write_text(text.replace(old, new))

    return change


def recoded(path: str, encoding: str, first: str) -> Change:
    """Saves a text in another encoding, with `first` as its first line."""

    def change(root: Path) -> None:
        (root / path).write_bytes((first + (root / path).read_text()).encode(encoding))

    return change


def move(source: str, target: str) -> Change:
    """Renames a file or directory."""

    def change(root: Path) -> None:
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        (root / source).rename(root / target)

    return change


def remove(path: str) -> Change:
    """Deletes a file or directory."""

    def change(root: Path) -> None:
        target = root / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()

    return change


def empty(path: str) -> Change:
    """Deletes all files in a directory."""

    def change(root: Path) -> None:
        shutil.rmtree(root / path)
        (root / path).mkdir()

    return change


def folder(path: str) -> Change:
    """Creates an empty directory."""
    return lambda root: (root / path).mkdir(parents=True)


def forbid(path: str) -> Change:
    """Removes all permissions."""
    return lambda root: (root / path).chmod(0)
