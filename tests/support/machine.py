"""Describes the machine of a measurement."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> str:
    """Returns the cores, the memory and the system in one line."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} x {cpu}, {memory:.0f} GiB, {platform.system()} {platform.release()}"
