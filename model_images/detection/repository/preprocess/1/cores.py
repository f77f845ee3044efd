"""The number of CPUs that this process may use."""

import math
import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def cores(cgroups: Path = CGROUPS) -> int:
    """Returns the number of CPUs of the CPU affinity, at most the container's CPU limit (rounded up), at least 1.

    `os.cpu_count()` would return the node's CPUs.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = _limit(cgroups)
    return max(1, allowed if limit is None else min(allowed, math.ceil(limit)))


def _limit(cgroups: Path) -> float | None:
    """Returns the CPU limit of the cgroup (version 2, else 1), or None if there is none or it can't be read."""
    try:
        if (cgroups / "cpu.max").exists():
            quota, period = (cgroups / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota, period = (
                (cgroups / "cpu" / f"cpu.cfs_{name}_us").read_text(encoding="ascii").strip()
                for name in ("quota", "period")
            )
        # No quota is "max" in version 2 and -1 in version 1.
        return int(quota) / int(period) if quota != "max" and int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
