"""The memory of the server's container, read through the process namespace that this container shares with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_CGROUPS = Path("/proc/1/root/sys/fs/cgroup")
_UNLIMITED = 1 << 60
"""Version 1 of cgroups reports no limit as a number near 2^63."""
_LEAST = 64 << 20
"""A model may take this much however small the server is, e.g. for a Python process."""
_PROGRAM = 96 << 20
"""What this program may take (64 MiB with a small repository). If every container has a memory limit, the pod has one:
the sum of its containers, or the largest init container. This program counts there; the kernel may end the server."""


@dataclass(frozen=True)
class Memory:
    """Bytes that the container uses, without the page cache that the kernel can free, and its limit."""

    used: int
    limit: int


def read(cgroups: Path = _CGROUPS) -> Memory | None:
    """Returns the memory of the server's container; None if it has no limit, or if it can't be read."""
    first, names = cgroups / "memory", ("memory.usage_in_bytes", "memory.limit_in_bytes", "total_inactive_file")
    try:
        if not first.is_dir():
            first, names = cgroups, ("memory.current", "memory.max", "inactive_file")
        usage, limit = ((first / name).read_text().strip() for name in names[:2])
        lines = (line.split() for line in (first / "memory.stat").read_text().splitlines())
        free = next((int(line[1]) for line in lines if line[:1] == [names[2]]), 0)
        memory = Memory(max(int(usage) - free, 0), int(limit))
    except (OSError, ValueError, IndexError):
        return None
    return memory if memory.limit < _UNLIMITED else None


def scarce(memory: Memory | None) -> str:
    """Returns why this program may not fit next to the server; "" if it fits, or if nothing is known."""
    if memory is None or memory.used + _PROGRAM <= memory.limit:
        return ""
    return f"a change in place needs {_mebibytes(_PROGRAM)}: {_raise(memory)}"


def shortage(memory: Memory | None, growth: float) -> str:
    """Returns why a second version of one loaded model may not fit; "" if it fits.

    One model can't take more than the whole server, so there must be room for that once more. `growth`: size of the new
    model's files relative to the old ones.
    """
    if memory is None:
        return "the memory of the server can't be read, or has no limit"
    need = max(memory.used * max(growth, 1.0), _LEAST)
    if memory.used + need + _PROGRAM <= memory.limit:
        return ""
    return (
        f"both versions of a model may not fit: a second version may need {_mebibytes(need)} and the change itself "
        f"{_mebibytes(_PROGRAM)}, and {_raise(memory)}"
    )


def _raise(memory: Memory) -> str:
    used, limit = map(_mebibytes, (memory.used, memory.limit))
    return f"the server uses {used} of its limit of {limit} (raise spec.server.resources.limits.memory)"


def _mebibytes(number: float) -> str:
    return f"{round(number / (1 << 20))} MiB"
