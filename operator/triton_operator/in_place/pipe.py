"""The pipe to the container that has copied the files."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import TextIO

from .compare import NewServersError

POLL_SECONDS = 0.1


def opened(path: Path, seconds: float) -> TextIO:
    """Opens the pipe for writing. Raises NewServersError if nobody reads it within `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return os.fdopen(os.open(path, os.O_WRONLY | os.O_NONBLOCK), "w", encoding="utf-8")
        except OSError as error:
            if error.errno not in (errno.ENXIO, errno.ENOENT) or time.monotonic() > deadline:
                raise NewServersError(f"the container that copied the files has ended: {error.strerror}") from None
        time.sleep(POLL_SECONDS)
