"""Runs the commands of one part and writes their output to a log file."""

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
    """A part can't be made. The message is the reason, in one line; `advice` is what the user can do."""

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
        """Runs a command. Raises FailedError if it can't start or its exit code isn't 0."""
        words = [str(word) for word in command]
        self._log.write(f"+ {' '.join(words)}\n".encode())
        self._log.flush()
        if self._is_cancelled():
            raise FailedError("cancelled")
        try:
            # A new session, so that cancel() ends the children too.
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
            raise FailedError(f"`{_short(words)}` failed with exit code {code}")

    def cancel(self) -> None:
        """Ends the running command and its children, and prevents further commands."""
        self._cancelled = True
        if (process := self._process) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

    def _is_cancelled(self) -> bool:
        # A method, because another thread may set the attribute between two checks.
        return self._cancelled

    def say(self, text: str) -> None:
        self._log.write(f"{text}\n".encode())
        self._log.flush()

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """Creates an empty folder and deletes it afterwards. It is on the results' file system, for hard links."""
        scratch = settings.HOME / "tmp"
        scratch.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(dir=scratch, prefix=f"{self.name}-"))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def download(self, url: str, target: Path, sums: str) -> None:
        """Downloads a file. Raises FailedError if its SHA-256 or SHA-512 differs from the one published at `sums`."""
        self.say(f"downloading {url}")
        partial = target.with_name(f"{target.name}.part")
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, partial.open("wb") as file:
                shutil.copyfileobj(answer, file)
            with urllib.request.urlopen(sums, timeout=60) as answer:
                published = answer.read(1 << 20).decode()
        except OSError as error:
            advice = "set WORLD=packages to build it from package registries"
            raise FailedError(f"can't download {url}: {error}", advice) from None
        expected = _sum_of(url.rpartition("/")[2], published)
        algorithm = "sha512" if len(expected) == 128 else "sha256"
        with partial.open("rb") as file:
            actual = hashlib.file_digest(file, algorithm).hexdigest()
        if actual != expected:
            partial.unlink()
            raise FailedError(f"{url} has the checksum {actual}; the published one is {expected or 'missing'}")
        partial.rename(target)

    def close(self) -> None:
        self._log.close()

    def tail(self, lines: int = 20) -> list[str]:
        """Returns the last lines of the log."""
        return self.log_path.read_text(errors="replace").splitlines()[-lines:]


def _short(words: list[str]) -> str:
    text = " ".join(words)
    return text if len(text) < 90 else f"{text[:87]}..."


def _sum_of(name: str, published: str) -> str:
    """Returns the file's checksum from lines "SUM  NAME", or "". A list with one line may omit the name."""
    rows = [line.split() for line in published.splitlines() if line.strip()]
    named = [row[0] for row in rows if len(row) > 1 and row[1].lstrip("*").rpartition("/")[2] == name]
    if named:
        return named[0]
    return rows[0][0] if len(rows) == 1 else ""
