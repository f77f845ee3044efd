"""Starts programs that end with the process that starts them, however that ends."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

# Of util-linux; Linux only. It becomes the program, which keeps its process id.
_SETPRIV = shutil.which("setpriv")


def start(
    command: Sequence[str | Path], *, last: Literal["KILL", "TERM"] = "KILL", **options: Any
) -> subprocess.Popen[Any]:
    """Starts a program with the options of Popen, and without a shell.

    It gets the signal `last` when the calling thread ends: fixtures stop their programs, but not when pytest is killed.
    So call it in a thread that lives for as long as the program is needed.
    """
    ends = [_SETPRIV, f"--pdeathsig={last}", "--"] if _SETPRIV else []
    return subprocess.Popen([*ends, *command], **options)
