"""The files of a repository, in a directory or in an archive, read without following a link out of it.

A store tells what lies at a path and follows no link. `Files` follows links by its own rules: a link may lead to
another place of the same repository, and nowhere else. Paths are relative to the repository, with `/`; an empty path is
the repository itself.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Protocol

MAX_LINKS = 40
"""Links that are followed on the way to one file, as on Linux."""
MAX_NAMES = 100_000
"""Names of one directory that are read."""


class Kind(StrEnum):
    """What lies at a path."""

    FILE = "file"
    FOLDER = "directory"
    LINK = "link"
    SPECIAL = "special file"
    """A pipe, a socket or a device, which is never opened."""
    NOTHING = "nothing"
    """Also a link that leads nowhere, or in a circle."""
    OUTSIDE = "a link that leads out of the repository"
    UNKNOWN = "unreadable"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, a directory or a link."""

    kind: Kind
    size: int = 0
    """Bytes of a file."""
    target: str = ""
    """Where a link points, as it is written."""
    readable: bool = True


class Store(Protocol):
    """Where a repository lies. No method follows a link."""

    root: str
    """The absolute path of the repository, by which it tells absolute links that stay inside."""

    def entry(self, path: str) -> Entry:
        """What lies at `path`. Raises OSError."""

    def names(self, path: str) -> list[str]:
        """The names in the directory at `path`. Raises OSError."""

    def open(self, path: str) -> IO[bytes]:
        """The plain file at `path`, for reading and seeking. Raises OSError."""


class Directory:
    """A repository in a directory of this machine."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.root = os.path.realpath(path)

    def entry(self, path: str) -> Entry:
        place = self._place(path)
        found = os.lstat(place)
        if stat.S_ISLNK(found.st_mode):
            return Entry(Kind.LINK, target=os.readlink(place))  # noqa: PTH115 - Path changes the text of the target
        if stat.S_ISDIR(found.st_mode):
            return Entry(Kind.FOLDER)
        if not stat.S_ISREG(found.st_mode):
            return Entry(Kind.SPECIAL)
        return Entry(Kind.FILE, found.st_size, readable=os.access(place, os.R_OK, effective_ids=True))

    def names(self, path: str) -> list[str]:
        return os.listdir(self._place(path))  # noqa: PTH208 - names are wanted, not paths

    def open(self, path: str) -> IO[bytes]:
        # A file may turn into a link or a pipe between the look at it and this.
        file = os.fdopen(os.open(self._place(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError("not a plain file")
        return file

    def _place(self, path: str) -> str:
        return str(Path(self.root, path))


class OutsideError(OSError):
    """A link leads out of the repository; `link` is its path, `target` where it points."""

    def __init__(self, link: str, target: str) -> None:
        super().__init__(f"a link to {target}, which lies outside of the repository")
        self.link = link
        self.target = target


class Files:
    """A store whose links are followed inside of it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._root = [part for part in store.root.split("/") if part]

    def resolve(self, path: str) -> tuple[str, Entry]:
        """The place that `path` leads to, and what lies there: anything but a link.

        Raises OutsideError, or another OSError for what isn't there, can't be read, or is a circle of links.
        """
        todo = [part for part in reversed(path.split("/")) if part]
        at = list(self._root)
        entry = Entry(Kind.FOLDER)
        links, link, target = 0, path, ""
        while todo:
            part = todo.pop()
            if part == ".":
                continue
            if part == "..":
                at = at[:-1]
                entry = Entry(Kind.FOLDER)
                continue
            if entry.kind is not Kind.FOLDER:
                raise NotADirectoryError(f"{self._inner(at)} is no directory")
            at.append(part)
            if len(at) <= len(self._root):  # above the repository: only the way back into it is known
                if at != self._root[: len(at)]:
                    raise OutsideError(link, target)
                continue
            entry = self.store.entry(self._inner(at))
            if entry.kind is Kind.LINK:
                links += 1
                if links > MAX_LINKS:
                    raise OSError("a circle of links, or too many of them")
                link, target = self._inner(at), entry.target
                at = [] if target.startswith("/") else at[:-1]
                todo += [step for step in reversed(target.split("/")) if step]
                entry = Entry(Kind.FOLDER)
        if at[: len(self._root)] != self._root:
            raise OutsideError(link, target)
        return self._inner(at), entry

    def look(self, path: str) -> Entry:
        """What `path` leads to: never a link, and never an exception."""
        try:
            return self.resolve(path)[1]
        except OutsideError as error:
            return Entry(Kind.OUTSIDE, target=error.target)
        except PermissionError:
            return Entry(Kind.UNKNOWN)
        except (OSError, ValueError):  # ValueError: a zero in a name
            return Entry(Kind.NOTHING)

    def names(self, path: str) -> list[str]:
        """The names in the directory that `path` leads to, sorted. Raises OSError."""
        names = self.store.names(self.resolve(path)[0])
        if len(names) > MAX_NAMES:
            raise OSError(f"more than {MAX_NAMES} names in one directory")
        return sorted(names)

    def open(self, path: str) -> IO[bytes]:
        """The plain file that `path` leads to. Raises OSError."""
        place, entry = self.resolve(path)
        if entry.kind is not Kind.FILE:
            raise OSError("not a plain file")
        return self.store.open(place)

    def read(self, path: str, most: int) -> bytes:
        """At most `most` bytes from the start of a file. Raises OSError."""
        with self.open(path) as file:
            return file.read(most)

    def _inner(self, at: list[str]) -> str:
        return "/".join(at[len(self._root) :])


def join(*parts: str) -> str:
    """A path of `parts`, of which empty ones are left out."""
    return "/".join(part for part in parts if part)
