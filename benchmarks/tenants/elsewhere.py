"""Runs the programs that have other machines in a cluster, so that they don't delay the operator and the API server.

They use only time that no other program wants, like the tenant's servers and clients on other machines.
"""

from __future__ import annotations

import os
from pathlib import Path

# A program at nice 19 still keeps a core for some milliseconds when another one wakes up. This policy doesn't.
COMMAND = ("chrt", "--idle", "0")
"""Goes before a command."""


def move(pid: int) -> None:
    """Does the same with all threads of a running process."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
