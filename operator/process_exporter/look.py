"""Reads what the start script has copied from /proc and from its cgroup (render/processes.sh)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .series import KINDS

END = b"\nend\n"
"""The last line. A file without it is incomplete."""
_FORKED = 64
"""The flag PF_FORKNOEXEC of Linux (include/linux/sched.h)."""
_SERVER = re.compile(rb"server (\d{1,10})\n")
_BOOTED = re.compile(rb"^/proc/stat:btime (\d{1,15})$", re.MULTILINE)
_MEMORY = re.compile(rb"^/proc/(\d{1,10})/status:(Rss[A-Za-z]{4,5}):[ \t]*(\d{1,15}) kB$", re.MULTILINE)
_STAT = re.compile(rb"^/proc/(\d{1,10})/stat:(.*)$", re.MULTILINE)
_CGROUP = re.compile(rb"^/sys/fs/cgroup/(?:memory/)?memory\.(max|stat):(?:([a-z_]{1,40}) )?(\d{1,19})$", re.MULTILINE)
_V2 = ("anon", "shmem", "slab_unreclaimable", "kernel_stack", "pagetables", "percpu", "sock")
"""What can't be reclaimed, in memory.stat of cgroup v2 (Documentation/admin-guide/cgroup-v2.rst of Linux)."""
_V1 = ("total_rss", "total_shmem")
"""The same of cgroup v1, which has the kernel's memory elsewhere."""
_NO_LIMIT = 1 << 60
"""From this number of bytes on, cgroup v1 means that there is no limit."""
_COMMAND = re.compile(rb"^==> /proc/(\d{1,10})/cmdline <==$", re.MULTILINE)


@dataclass(frozen=True)
class Process:
    """A process at one moment. Times are in ticks, of which Linux has 100 per second.

    - `cpu`: its own CPU time. `waited`: that of its children that have ended, and for which it has waited.
    - `start`: when it started, after the node's start.
    - `forked`: whether it was forked, and has executed no program since then.
    - `memory`: its resident memory in bytes, by kind; empty if the kernel doesn't say it.
    - `command`: its command line. Empty if it is ending.
    """

    pid: int
    parent: int
    cpu: int
    waited: int
    threads: int
    start: int
    forked: bool
    memory: Mapping[str, int] = field(default_factory=dict)
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Memory:
    """The memory of a server's container in bytes.

    - `used`: what can't be reclaimed: anonymous and shared memory, and with cgroup v2 most of the kernel's. Without
      files: the kernel drops them from memory before it ends a process.
    - `limit`: the container's limit; None without one.
    """

    used: int
    limit: int | None


@dataclass(frozen=True)
class Look:
    """All processes of a server's container at one moment.

    - `server`: the number of tritonserver's process. `booted`: when the node has started, in seconds since 1970.
    - `memory`: that of the container; None if its cgroup isn't visible.
    """

    server: int
    booted: int
    processes: Mapping[int, Process]
    memory: Memory | None = None


def parse(data: bytes) -> Look | None:
    """Returns what a file says; None if it is incomplete or of something else.

    A process may choose its name and its command line. So a line of it may look like another one, and counts only for
    itself: each line has the number of its process, and the first command line of a number counts.
    """
    server, first = _SERVER.match(data), _COMMAND.search(data)
    head = data[: first.start()] if first else data
    booted = _BOOTED.search(head)
    if server is None or booted is None or not data.endswith(END):
        return None
    memory: dict[int, dict[str, int]] = {}
    for pid, kind, kib in _MEMORY.findall(head):
        if kind.decode() in KINDS:
            memory.setdefault(int(pid), {})[KINDS[kind.decode()]] = int(kib) << 10
    commands: dict[int, tuple[str, ...]] = {}
    headers = list(_COMMAND.finditer(data))
    ends = [*(header.start() for header in headers[1:]), len(data) - len(END)]
    for header, end in zip(headers, ends, strict=True):
        text = data[header.end() + 1 : end].rstrip(b"\n").removesuffix(b"\0")
        words = tuple(word.decode(errors="replace") for word in text.split(b"\0")) if text else ()
        commands.setdefault(int(header[1]), words)
    stats: dict[int, bytes] = {}
    for pid, line in _STAT.findall(head):
        # The name of a program may have more lines than one.
        stats[int(pid)] = stats.get(int(pid), b"") + line
    found = (_process(pid, text, memory.get(pid, {}), commands.get(pid, ())) for pid, text in stats.items())
    by_number = {process.pid: process for process in found if process}
    return Look(int(server[1]), int(booted[1]), by_number, _memory(head))


def _memory(head: bytes) -> Memory | None:
    """Returns the memory of the container, from the files of its cgroup."""
    numbers = {(name or file).decode(): int(number) for file, name, number in _CGROUP.findall(head)}
    kinds = _V2 if _V2[0] in numbers else _V1
    if kinds[0] not in numbers:
        return None
    limit = numbers.get("max", numbers.get("hierarchical_memory_limit", _NO_LIMIT))
    return Memory(sum(numbers.get(kind, 0) for kind in kinds), limit if limit < _NO_LIMIT else None)


def _process(pid: int, text: bytes, memory: Mapping[str, int], command: tuple[str, ...]) -> Process | None:
    """Returns a process from its /proc/PID/stat (man 5 proc). The name before the last parenthesis may be anything."""
    fields = text.rpartition(b")")[2].split()
    if len(fields) < 20:
        return None
    try:
        parent, flags, user, system, of_children, system_of_children, threads, start = (
            int(fields[number - 3]) for number in (4, 9, 14, 15, 16, 17, 20, 22)
        )
    except ValueError:
        return None
    return Process(
        pid, parent, user + system, of_children + system_of_children, threads, start,
        forked=bool(flags & _FORKED), memory=memory, command=command,
    )  # fmt: skip
