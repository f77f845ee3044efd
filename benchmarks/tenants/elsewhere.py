"""Runs programs with the scheduling policy SCHED_IDLE: they get a core only while no other program needs it.

The benchmark uses it for programs that run on other machines in a cluster, so that they delay neither the operator nor
the API server.
"""

from __future__ import annotations

import os
from pathlib import Path

# A program at nice 19 still keeps a core for some milliseconds when another one wakes up. This policy doesn't.
COMMAND = ("chrt", "--idle", "0")
"""Starts a program with SCHED_IDLE, as a prefix of its command."""


def move(pid: int) -> None:
    """Sets SCHED_IDLE for all threads of a running process."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))
