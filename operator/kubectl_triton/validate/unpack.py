"""Access to the files of an image in the tar archives of its layers, which may be malicious.

Nothing is unpacked. tarfile reads only the headers. A file is a position in an archive, and its content is read from
there when a check needs it. This module follows links inside of the image, the kernel never does.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeAlias

import zstandard

from triton_repository_check.files import MAX_LINKS, Entry, FileKind, Files, Store, join

MAX_ENTRIES = 1_000_000
"""Maximum number of files, directories and links of an image."""
MAX_DEPTH = 256
"""Maximum number of directory levels."""
MAX_NAME = 4096
"""Maximum length of a path in bytes, as on Linux."""
MAX_HEADER = 2**20
"""Maximum size of a header with a long name or extended attributes, in bytes."""
MAX_BYTES = 2**40
"""Maximum size of a decompressed layer in bytes. Only the files below the models' path are kept."""

_USER = 1000
"""The user and the group of servers."""
_CHUNK = 2**20
_WINDOW = 2**27
"""Maximum memory in bytes that a zstd stream may ask for. Compressors use up to 8 MiB by default."""
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class RefusedError(ValueError):
    """The archive is rejected, because it contains something that no image needs."""


class Header(tarfile.TarInfo):
    """A header with a validated size.

    Before Python 3.13.6, tarfile reads a header with a negative size forever (CVE-2025-8194). A large one fills the
    memory.
    """

    def _block(self, count: int) -> int:
        if count < 0 or (self.type in _LONG and count > MAX_HEADER):
            raise RefusedError(f"a header has an invalid size: {count} bytes")
        return super()._block(count)  # type: ignore[misc, no-any-return]


_LONG = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


@dataclass(slots=True)
class File:
    """A regular file: `size` bytes of `source` at `start`.

    - `executable`: whether the servers' user may read or execute it.
    """

    source: IO[bytes]
    start: int
    size: int
    readable: bool = True
    executable: bool = False


@dataclass(slots=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(slots=True)
class Special:
    """A device, a pipe, a sparse file, or an unknown type."""


@dataclass(slots=True)
class Folder:
    """A directory. `readable`: whether the servers' user may list it and open its files."""

    held: dict[str, Node] = field(default_factory=dict)
    readable: bool = True


Node: TypeAlias = File | Link | Special | Folder


def headers(file: IO[bytes]) -> Iterator[tarfile.TarInfo]:
    """Returns the headers of the uncompressed archive in `file`. Raises RefusedError and tarfile.TarError."""
    with tarfile.open(fileobj=file, mode="r:", tarinfo=Header) as archive:
        count = 0
        while (member := archive.next()) is not None:
            count += 1
            if count > MAX_ENTRIES:
                raise RefusedError(f"more than {MAX_ENTRIES} entries")
            if member.size < 0 or member.offset_data + member.size > MAX_BYTES:
                raise RefusedError(f"{member.name[:80]}: invalid size: {member.size} bytes")
            archive.members = []  # type: ignore[attr-defined]  # free the memory of the previous headers
            yield member


def decompressed(file: IO[bytes]) -> tuple[IO[bytes], bool]:
    """Returns `file` or its decompressed content, and whether it is compressed."""
    start = file.read(6)
    file.seek(0)
    kind = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
    match kind:
        case None:
            return file, False
        case "gzip":
            return gzip.GzipFile(fileobj=file), True  # type: ignore[return-value]
        case "bzip2":
            return bz2.BZ2File(file), True
        case "xz":
            return lzma.LZMAFile(file), True
    return io.BufferedReader(_Zstd(file)), True


class _Zstd(io.RawIOBase):
    """The decompressed content of a file with zstd. Going back decompresses it from the beginning again."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._restart()

    def _restart(self) -> None:
        self._file.seek(0)
        decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        self._reader, self._at = decompressor.stream_reader(self._file, read_across_frames=True, closefd=False), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            raise io.UnsupportedOperation("the size isn't known")
        target = offset + (self._at if whence == io.SEEK_CUR else 0)
        if target < self._at:
            self._restart()
        while self._at < target and self.read(min(target - self._at, _CHUNK)):
            pass
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            content = self._reader.read(len(buffer))
        except zstandard.ZstdError as error:
            raise OSError(f"a layer can't be decompressed: {error}") from error
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


class Image:
    """The files of an image. Add the layers from the lowest to the highest."""

    def __init__(self) -> None:
        self.top = Folder()
        self._entries = 0

    def add(self, layer: IO[bytes], below: str = "") -> None:
        """Applies the uncompressed `layer` inside of the directory `below`. Later reads of its files use `layer`."""
        for member in headers(layer):
            path = join(below, _clean(member.name))
            parts = path.split("/") if path else []
            if not parts:
                continue
            if len(path.encode(errors="surrogateescape")) > MAX_NAME or len(parts) > MAX_DEPTH:
                raise RefusedError(
                    f"{path[:80]}…: the path is too long: {len(parts)} directories and {len(path)} characters"
                )
            if parts[-1] == ".wh..wh..opq":
                if isinstance(folder := self._find(parts[:-1]), Folder):
                    folder.held.clear()
            elif parts[-1].startswith(".wh."):
                self._delete(path, parts)
            else:
                self._put(parts, self._node(layer, member, below))

    def under(self, path: str) -> Folder | None:
        """Returns the directory at `path`; None if there is none. Follows links inside of the image."""
        node = self._find([part for part in path.split("/") if part])
        return node if isinstance(node, Folder) else None

    def _node(self, layer: IO[bytes], member: tarfile.TarInfo, below: str) -> Node:
        rights = member.mode >> (6 if member.uid == _USER else 3 if member.gid == _USER else 0)
        if member.isdir():
            return Folder(readable=rights & 5 == 5)
        if member.issym():
            return Link(member.linkname)
        if member.islnk():
            name = join(below, _clean(member.linkname))
            shared = self._find(name.split("/"), follow=False)
            if shared is None or isinstance(shared, Folder):
                raise RefusedError(f"{member.name}: a hard link to {member.linkname}, which is not a file of the image")
            return shared
        if member.isreg() and not member.issparse():
            return File(layer, member.offset_data, member.size, bool(rights & 4), bool(rights & 1))
        return Special()

    def _put(self, parts: list[str], node: Node) -> None:
        folder = self._folder(parts[:-1])
        here = folder.held.get(parts[-1])
        if isinstance(node, Folder) and isinstance(here, Folder):
            here.readable = node.readable
            return
        self._count()
        folder.held[parts[-1]] = node

    def _folder(self, parts: list[str]) -> Folder:
        """Returns the directory at `parts`, or creates it. Follows links to directories."""
        at = self.top
        for index, part in enumerate(parts):
            node = at.held.get(part)
            if isinstance(node, Link):
                node = self._find(parts[: index + 1])
            if not isinstance(node, Folder):
                node = at.held[part] = Folder()
                self._count()
            at = node
        return at

    def _count(self) -> None:
        self._entries += 1
        if self._entries > MAX_ENTRIES:
            raise RefusedError(f"more than {MAX_ENTRIES} files and directories")

    def _delete(self, path: str, parts: list[str]) -> None:
        name = parts[-1].removeprefix(".wh.")
        if name in ("", ".", ".."):
            raise RefusedError(f"{path}: the whiteout file names nothing to delete")
        if isinstance(folder := self._find(parts[:-1]), Folder):
            folder.held.pop(name, None)

    def _find(self, parts: list[str], follow: bool = True) -> Node | None:
        """Returns the node at `parts`; None if there is none. Follows a link in the last part only with `follow`."""
        above: list[Folder] = []
        at: Node = self.top
        todo, links = list(reversed(parts)), 0
        while todo:
            part = todo.pop()
            if part == "..":
                at = above.pop() if above else self.top
                continue
            if not isinstance(at, Folder):
                return None
            node = at.held.get(part)
            if isinstance(node, Link) and (follow or todo):
                links += 1
                if links > MAX_LINKS:
                    return None
                if node.target.startswith("/"):
                    at, above = self.top, []
                todo += [step for step in reversed(node.target.split("/")) if step not in ("", ".")]
                continue
            if node is None:
                return None
            above.append(at)
            at = node
        return at


class Archived:
    """A repository in an image. `platform`: which of its images it is, if a user may expect another; else empty."""

    def __init__(self, folder: Folder, root: str, platform: str = "") -> None:
        self.root = root
        self.platform = platform
        self._folder = folder

    def entry(self, path: str) -> Entry:
        match self._at(path):
            case Folder(readable=readable):
                return Entry(FileKind.FOLDER, readable=readable)
            case Link(target):
                return Entry(FileKind.LINK, target=target)
            case File(size=size, readable=readable, executable=executable):
                return Entry(FileKind.FILE, size, readable=readable, executable=executable)
        return Entry(FileKind.SPECIAL)

    def names(self, path: str) -> list[str]:
        node = self._at(path)
        if not isinstance(node, Folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not node.readable:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return list(node.held)

    def open(self, path: str) -> IO[bytes]:
        node = self._at(path)
        if not isinstance(node, File):
            raise OSError("not a regular file")
        return io.BufferedReader(_Window(node))

    def files(self) -> Iterator[File]:
        """Returns each regular file once."""
        todo: list[Folder] = [self._folder]
        ids: set[int] = set()
        while todo:
            for node in todo.pop().held.values():
                if isinstance(node, Folder):
                    todo.append(node)
                elif isinstance(node, File) and id(node) not in ids:
                    ids.add(id(node))
                    yield node

    def _at(self, path: str) -> Node:
        node: Node | None = self._folder
        for part in path.split("/") if path else []:
            node = node.held.get(part) if isinstance(node, Folder) else None
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return node


class _Window(io.RawIOBase):
    """The content of a file in an archive."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = max(min(len(buffer), self._file.size - self._at), 0)
        self._file.source.seek(self._file.start + self._at)
        content = self._file.source.read(count)
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


def keep(stream: IO[bytes], into: IO[bytes], files: Iterator[File]) -> None:
    """Copies the contents of `files` from `stream` to the end of `into`. Later reads of the files use `into`.

    Raises RefusedError if the disk is too small, EOFError if the stream ends too early.
    """
    room = shutil.disk_usage(str(into.name)).free * 9 // 10
    for file in sorted(files, key=lambda file: file.start):
        room -= file.size
        if room < 0:
            raise RefusedError(f"not enough disk space for a file of {file.size} bytes")
        stream.seek(file.start)
        start, left = into.seek(0, os.SEEK_END), file.size
        while left:
            chunk = stream.read(min(left, _CHUNK))
            if not chunk:
                raise EOFError("a layer is truncated")
            into.write(chunk)
            left -= len(chunk)
        file.source, file.start = into, start


def write(store: Store, folder: Path) -> None:
    """Writes the repository to the empty directory `folder`: directories, regular files, and links that stay inside.

    Creates directories before their files, and all links at the end, so that it never writes through a link.
    """
    files = Files(store)
    todo, links = [""], []
    while todo:
        at = todo.pop()
        for name in store.names(at):
            path = join(at, name)
            entry = store.entry(path)
            if entry.kind is FileKind.FOLDER:
                (folder / path).mkdir()
                todo.append(path)
            elif entry.kind is FileKind.FILE:
                with store.open(path) as source, (folder / path).open("xb") as target:
                    shutil.copyfileobj(source, target, _CHUNK)
            elif entry.kind is FileKind.LINK:
                links.append(path)
    for path in links:
        try:
            target_path, _ = files.resolve(path)
        except OSError:
            continue
        (folder / path).symlink_to(os.path.relpath(folder / target_path, (folder / path).parent))


def _clean(name: str) -> str:
    """Returns the name without `.` and empty parts. Raises RefusedError for `..` and for null characters."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise RefusedError(f"{name[:80]!r}: invalid file name in an image")
    return "/".join(parts)
