"""Writes tar.gz archives that don't depend on when and where they are made."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

EXECUTABLE = 0o755


def of_folder(folder: Path, below: str = "") -> dict[str, bytes]:
    """Returns the files of a folder by their path in an archive, below the folder `below`."""
    return {
        "/".join(filter(None, [below, path.relative_to(folder).as_posix()])): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write(target: Path, files: Mapping[str, bytes], time: int, executable: frozenset[str] = frozenset()) -> None:
    """Writes a tar.gz with these files, sorted by path, owned by root, with this time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(files[name]), time
            entry.mode = EXECUTABLE if name in executable else 0o644
            archive.addfile(entry, io.BytesIO(files[name]))
    target.write_bytes(gzip.compress(buffer.getvalue(), mtime=time))
