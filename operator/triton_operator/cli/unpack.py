"""Unpacks tar archives that nobody vouches for.

Not with tarfile's own extraction: its safe filters are missing before Python 3.11.4, and could be led out of the
directory until the middle of 2025 (CVE-2025-4517). Here nothing is written through a link, and nothing comes into being
but directories, plain files and links; `Tree.seal` refuses the links that lead out, before anybody reads.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tarfile
from pathlib import Path
from typing import IO

MAX_ENTRIES = 1_000_000
MAX_DEPTH = 64
"""Directories inside of one another; a model has three."""
MAX_HEADER = 2**20
"""Bytes of a header that is read into memory, with a long name or extended attributes."""

_LEADS_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class RefusedError(ValueError):
    """The archive has what no model repository needs; the text says what."""


class _Entry(tarfile.TarInfo):
    """A header whose size is checked before it is believed: a negative one is read forever before Python 3.13.6
    (CVE-2025-8194), and a large one fills the memory."""

    def _block(self, count: int) -> int:
        if count < 0 or (self.type in _HEADERS and count > MAX_HEADER):
            raise RefusedError(f"a header says {count} bytes")
        return super()._block(count)  # type: ignore[misc, no-any-return]


_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


def archive(file: IO[bytes], mode: str = "r:*") -> tarfile.TarFile:
    """The archive in `file`, for reading."""
    return tarfile.open(fileobj=file, mode=mode, tarinfo=_Entry)  # type: ignore[call-overload, no-any-return]


def inside(name: str, folder: str) -> str | None:
    """What an archive's `name` is called below its `folder`, and "." for that itself; None for what lies elsewhere."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise RefusedError(f"{name}: .. in a name")
    above = [part for part in folder.split("/") if part not in ("", ".")]
    if parts[: len(above)] != above:
        return None
    return "/".join(parts[len(above) :]) or "."


class Tree:
    """A directory of ours, into which archives are unpacked, one over the other."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._entries = MAX_ENTRIES
        self._room = shutil.disk_usage(root).free * 9 // 10

    def add(self, source: tarfile.TarFile, member: tarfile.TarInfo, folder: str) -> None:
        """Unpack one entry that lies below `folder`, in the place of what is there."""
        name = inside(member.name, folder)
        if name is None or name == ".":
            return
        place = self._place(name)
        if member.isdir():
            if not _is_directory(place):
                self._remove(place)
                self._make_directory(place)
            return
        self._count(name)
        self._remove(place)
        if member.isreg():
            self._write(source, member, place)
        elif member.issym():
            place.symlink_to(member.linkname)
        elif member.islnk():
            self._link(source, member, place, folder)
        else:
            raise RefusedError(f"{name}: neither a file, a directory nor a link")

    def empty(self, name: str) -> None:
        """Take away what is in the directory `name`."""
        place = self._place(name)
        if _is_directory(place):
            shutil.rmtree(place)
            place.mkdir()

    def remove(self, name: str) -> None:
        self._remove(self._place(name))

    def seal(self) -> None:
        """Refuse links that lead out. Links that lead nowhere may stay: whoever reads finds nothing."""
        for above, folders, files in os.walk(self.root, onerror=_raise):
            for place in (Path(above, name) for name in (*folders, *files)):
                if place.is_symlink() and not _target(place).is_relative_to(self.root):
                    raise RefusedError(
                        f"{place.relative_to(self.root)}: a link to {place.readlink()}, which lies outside"
                    )

    def _place(self, name: str) -> Path:
        """Where `name` is to be. Every directory above is there, and none is a link."""
        parts = name.split("/")
        if len(parts) > MAX_DEPTH:
            raise RefusedError(f"{len(parts)} directories inside of one another")
        place = self.root
        for part in parts[:-1]:
            place = place / part
            if not os.path.lexists(place):
                self._make_directory(place)
            elif not _is_directory(place):
                raise RefusedError(f"{name}: {place.relative_to(self.root)} is no directory")
        return place if parts[-1] == "." else place / parts[-1]

    def _make_directory(self, place: Path) -> None:
        self._count(place.name)
        place.mkdir()

    def _count(self, name: str) -> None:
        self._entries -= 1
        if self._entries < 0:
            raise RefusedError(f"{name}: more than {MAX_ENTRIES} files and directories")

    def _write(self, source: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
        """The size is what comes out, also of a sparse file."""
        if not 0 <= member.size <= self._room:
            raise RefusedError(f"{member.name}: {member.size} bytes, and there is room for {self._room}")
        self._room -= member.size
        content = source.extractfile(member)
        if content is None:
            raise RefusedError(f"{member.name}: no file")
        with content, place.open("xb") as file:  # x: neither over a file nor through a link
            shutil.copyfileobj(content, file, 2**20)
        place.chmod(member.mode & 0o755 | 0o600)

    def _link(self, source: tarfile.TarFile, member: tarfile.TarInfo, place: Path, folder: str) -> None:
        """A hard link: to what is here, or to a file that lies elsewhere in the archive, whose content is taken."""
        name = inside(member.linkname, folder)
        if name is not None:
            os.link(self._place(name), place, follow_symlinks=False)
            return
        elsewhere = source.getmember(member.linkname)
        if not elsewhere.isreg():
            raise RefusedError(f"{member.name}: a hard link to {member.linkname}, which is no file")
        self._write(source, elsewhere, place)

    @staticmethod
    def _remove(place: Path) -> None:
        if _is_directory(place):
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


def _is_directory(place: Path) -> bool:
    """Itself, not what a link leads to."""
    try:
        return stat.S_ISDIR(place.lstat().st_mode)
    except FileNotFoundError:
        return False


def _target(link: Path) -> Path:
    """Where the kernel ends when it follows. Only `strict` tells of a way that is too long for Python to follow."""
    try:
        return Path(os.path.realpath(link, strict=True))
    except OSError as error:
        if error.errno not in _LEADS_NOWHERE:
            raise
        return Path(os.path.realpath(link))


def _raise(error: OSError) -> None:
    raise error
