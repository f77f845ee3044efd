"""Clocks for upper limits: they don't count the time in which the machine was busy with something else.

They use what Linux counts. Elsewhere they count all time.
"""

from __future__ import annotations

import time
from pathlib import Path

_THREAD = Path("/proc/thread-self/schedstat")
"""Nanoseconds on a core, nanoseconds of waiting for one, and the number of times."""
_MACHINE = Path("/proc/pressure/cpu")
"""Has the microseconds in which at least one process waited for a core."""


def of_this_thread() -> float:
    """Returns seconds without those in which this thread waited for a core."""
    try:
        waited = int(_THREAD.read_text().split()[1]) / 1e9
    except OSError:
        waited = 0.0
    return time.monotonic() - waited


def of_an_idle_machine() -> float:
    """Returns seconds without those in which any process waited for a core.

    A difference says how long something took at least on an idle machine: an upper limit for it fails only if the
    cause isn't the load. Use it for no wait, because it may stand still.
    """
    try:
        line = _MACHINE.read_text().splitlines()[0]
        waited = int(line.rpartition("total=")[2]) / 1e6
    except OSError:
        waited = 0.0
    return time.monotonic() - waited
