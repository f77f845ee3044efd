"""Adds up what the processes of a server use, by the instances of its Python models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .look import Look, Process

TICKS = 100
"""Ticks per second of the times in /proc (USER_HZ), on every architecture that Triton runs on."""
_STUB = "triton_python_backend_stub"
_INSTANCE = 8
"""Which word of a stub's command line is the name of the instance; the first one is the program, the second the path of
model.py."""


class Line(NamedTuple):
    """The labels of a line of the page. A process that isn't of a model has neither `model` nor `version`."""

    model: str
    version: str
    process: str


SERVER, OTHER = Line("", "", "tritonserver"), Line("", "", "other")


@dataclass
class Use:
    """What the processes of a line use.

    - `cpu`: their CPU time in seconds, since this program has first seen one.
    - `memory`: bytes by kind; empty if the kernel doesn't say it. `started`: in seconds since 1970; 0 if unknown.
    """

    cpu: float = 0.0
    memory: dict[str, int] = field(default_factory=dict)
    threads: int = 0
    started: float = 0.0


class _Id(NamedTuple):
    """Linux uses numbers of processes again."""

    pid: int
    start: int


class _Seen(NamedTuple):
    line: Line
    process: Process


class Usage:
    """Adds up the looks at one server, and at the server that follows it in the same pod."""

    def __init__(self) -> None:
        self._seen: dict[_Id, _Seen] | None = None
        self.lines: Mapping[Line, Use] = {}

    def add(self, look: Look) -> None:
        """Replaces `lines` by those of this look, whose CPU times have grown since the one before."""
        before = self._seen or {}
        now = {_Id(p.pid, p.start): _Seen(_line_of(p, look, before), p) for p in look.processes.values()}
        ended = _ended(before, now)
        lines: dict[Line, Use] = {}
        for key, (line, process) in now.items():
            use = lines.setdefault(line, Use(self.lines[line].cpu if line in self.lines else 0.0))
            use.threads += process.threads
            for kind, size in process.memory.items():
                use.memory[kind] = use.memory.get(kind, 0) + size
            if line == SERVER or (_is_stub(process) and not process.forked):
                use.started = max(use.started, look.booted + process.start / TICKS)
            # A counter that began with the past would seem to jump when this program restarts.
            if self._seen is not None:
                last = before[key].process if key in before else None
                use.cpu += _spent(process, last, ended.get(key, 0), waits=line != SERVER) / TICKS
        self._seen, self.lines = now, lines

    def forget(self) -> None:
        """Removes all lines: the server writes no looks any more."""
        self.lines = {}


def _ended(before: Mapping[_Id, _Seen], now: Mapping[_Id, _Seen]) -> dict[_Id, int]:
    """Returns the CPU time of children that have ended, by their parents. It was counted while they were there."""
    starts = {seen.pid: seen.start for seen in before}
    out: dict[_Id, int] = {}
    for key, (_, process) in before.items():
        parent = _Id(process.parent, starts.get(process.parent, -1))
        if key not in now and parent in now:
            out[parent] = out.get(parent, 0) + process.cpu + process.waited
    return out


def _spent(process: Process, last: Process | None, ended: int, *, waits: bool) -> int:
    """Returns the CPU time of a process since the last look, with that of children that it hasn't shown by then.

    `waits`: whether its children belong to its line. Those of tritonserver are processes of models.
    """
    cpu = process.cpu - (last.cpu if last else 0)
    waited = process.waited - (last.waited if last else 0) if waits else 0
    return max(0, cpu) + max(0, waited - ended)


def _line_of(process: Process, look: Look, before: Mapping[_Id, _Seen]) -> Line:
    """Returns the line of a process: that of the next process of a model above it.

    A process that ends has no command line any more, and one whose parent has ended gets another parent. Both keep
    their line.
    """
    if process.pid == look.server:
        return SERVER
    above: Process | None = process
    for _ in range(len(look.processes)):
        if above is None or above.pid == look.server:
            break
        if _is_stub(above):
            return _line(above)
        above = look.processes.get(above.parent)
    seen = before.get(_Id(process.pid, process.start))
    return seen.line if seen else OTHER


def _is_stub(process: Process) -> bool:
    return len(process.command) > _INSTANCE and process.command[0].rpartition("/")[2] == _STUB


def _line(stub: Process) -> Line:
    """Returns the line of a process of a model.

    The path of model.py ends with the model's folder and its version. Not of a backend that is based on Python, nor of
    files that a client has sent with the request to load: then the model is what the instance's name begins with.
    """
    path, instance = stub.command[1], stub.command[_INSTANCE]
    *_, model, version, _ = ["", "", *path.split("/")]
    if not version.isdecimal():
        version = ""
    if not version or path.startswith("/tmp/"):  # noqa: S108 - where Triton puts them
        model = re.sub(r"_[0-9]+_[0-9]+$", "", instance)
    return Line(model, version, instance)
