"""Access to the files of a repository, in a directory or an archive, that follows no link out of the repository.

A `Store` follows no links. `Files` follows only links to other paths of the same repository. Paths are relative to the
repository, with `/`; an empty path is the repository itself.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Protocol

MAX_LINKS = 40
"""Maximum number of links on a path, as on Linux."""
MAX_NAMES = 100_000
"""Maximum number of entries of a directory."""


class FileKind(StrEnum):
    """The type of the entry at a path."""

    FILE = "file"
    FOLDER = "directory"
    LINK = "link"
    SPECIAL = "special file"
    """A pipe, a socket or a device. It is never opened."""
    NOTHING = "nothing"
    """The path doesn't exist, or is a broken or circular link."""
    OUTSIDE = "a link that leads out of the repository"
    UNKNOWN = "unreadable"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, a directory or a link.

    - `size`: size of a file in bytes.
    - `target`: the target of a link, unresolved.
    - `readable`: whether the user of the check, or the servers' user if it is in an image, may read the file or
      directory.
    """

    kind: FileKind
    size: int = 0
    target: str = ""
    readable: bool = True
    executable: bool = True


class Store(Protocol):
    """The storage of a repository. No method follows a link.

    - `root`: the absolute path of the repository. Absolute links below it stay inside the repository.
    """

    root: str

    def entry(self, path: str) -> Entry:
        """Returns the entry at `path`. Raises OSError."""

    def names(self, path: str) -> list[str]:
        """Returns the names in the directory at `path`. Raises OSError."""

    def open(self, path: str) -> IO[bytes]:
        """Opens the regular file at `path` for reading and seeking. Raises OSError."""


class Directory:
    """A repository in a directory of this machine."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.root = os.path.realpath(path)

    def entry(self, path: str) -> Entry:
        place = self._place(path)
        status = os.lstat(place)
        if stat.S_ISLNK(status.st_mode):
            return Entry(FileKind.LINK, target=os.readlink(place))  # noqa: PTH115 - Path changes the text of the target
        if stat.S_ISDIR(status.st_mode):
            return Entry(FileKind.FOLDER, readable=os.access(place, os.R_OK | os.X_OK, effective_ids=True))
        if not stat.S_ISREG(status.st_mode):
            return Entry(FileKind.SPECIAL)
        readable, executable = (os.access(place, how, effective_ids=True) for how in (os.R_OK, os.X_OK))
        return Entry(FileKind.FILE, status.st_size, readable=readable, executable=executable)

    def names(self, path: str) -> list[str]:
        return os.listdir(self._place(path))  # noqa: PTH208 - names are wanted, not paths

    def open(self, path: str) -> IO[bytes]:
        # A link or a pipe may replace the file between `entry` and `open`.
        file = os.fdopen(os.open(self._place(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError("not a regular file")
        return file

    def _place(self, path: str) -> str:
        return str(Path(self.root, path))


class OutsideError(OSError):
    """An error for a link that leads out of the repository. `link` is its path, `target` its target."""

    def __init__(self, link: str, target: str) -> None:
        super().__init__(f"a link to {target}, which is outside of the repository")
        self.link = link
        self.target = target


class Files:
    """The files of a store. Follows links that stay inside the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._root = [part for part in store.root.split("/") if part]

    def resolve(self, path: str) -> tuple[str, Entry]:
        """Returns the resolved path of `path` and its entry, which is never a link.

        Raises OutsideError, or another OSError if it doesn't exist, can't be read, or has a cycle of links.
        """
        todo = [part for part in reversed(path.split("/")) if part]
        at = list(self._root)
        entry = Entry(FileKind.FOLDER)
        links, link, target = 0, path, ""
        while todo:
            part = todo.pop()
            if part == ".":
                continue
            if part == "..":
                at = at[:-1]
                entry = Entry(FileKind.FOLDER)
                continue
            if entry.kind is not FileKind.FOLDER:
                raise NotADirectoryError(f"{self._inner(at)} is not a directory")
            at.append(part)
            if len(at) <= len(self._root):  # above the repository, only the path back into it is allowed
                if at != self._root[: len(at)]:
                    raise OutsideError(link, target)
                continue
            entry = self.store.entry(self._inner(at))
            if entry.kind is FileKind.LINK:
                links += 1
                if links > MAX_LINKS:
                    raise OSError("a cycle of links, or too many links")
                link, target = self._inner(at), entry.target
                at = [] if target.startswith("/") else at[:-1]
                todo += [step for step in reversed(target.split("/")) if step]
                entry = Entry(FileKind.FOLDER)
        if at[: len(self._root)] != self._root:
            raise OutsideError(link, target)
        return self._inner(at), entry

    def look(self, path: str) -> Entry:
        """Returns the entry of `path` with links resolved, so that it is never a link. Never raises."""
        try:
            return self.resolve(path)[1]
        except OutsideError as error:
            return Entry(FileKind.OUTSIDE, target=error.target)
        except PermissionError:
            return Entry(FileKind.UNKNOWN)
        except (OSError, ValueError):  # ValueError: a null character in a name
            return Entry(FileKind.NOTHING)

    def names(self, path: str) -> list[str]:
        """Returns the names in the directory at `path`, sorted. Raises OSError."""
        names = self.store.names(self.resolve(path)[0])
        if len(names) > MAX_NAMES:
            raise OSError(f"more than {MAX_NAMES} entries in one directory")
        return sorted(names)

    def open(self, path: str) -> IO[bytes]:
        """Opens the regular file at `path`. Raises OSError."""
        place, entry = self.resolve(path)
        if entry.kind is not FileKind.FILE:
            raise OSError("not a regular file")
        return self.store.open(place)

    def read(self, path: str, max_bytes: int) -> bytes:
        """Returns at most `most` bytes from the start of a file. Raises OSError."""
        with self.open(path) as file:
            return file.read(max_bytes)

    def _inner(self, at: list[str]) -> str:
        return "/".join(at[len(self._root) :])


def join(*parts: str) -> str:
    """Joins `parts` to a path. Leaves out empty parts."""
    return "/".join(part for part in parts if part)
