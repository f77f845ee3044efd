"""What the checks have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from triton_operator.repository.findings import Finding, Severity
from triton_operator.repository.model import Model, Repository
from triton_operator.repository.places import Node


@dataclass(frozen=True, slots=True)
class Expected:
    """What the pod wants of the repository."""

    entrypoint: str | None = None
    """spec.entrypoint."""
    load_models: tuple[str, ...] = ()
    """spec.server.loadModels; empty where Triton loads everything."""
    shared_memory: int | None = None
    """Bytes of /dev/shm; None where it isn't known."""
    gpus: int = 1
    """Devices that Triton sees."""


NOTHING = Expected()
"""No wishes: the repository is judged by itself."""

Check = Callable[[Repository, Expected], Iterable[Finding]]


def each_model(check: Callable[[Repository, Model], Iterable[Finding]]) -> Check:
    """A check of one model as a check of the repository."""

    def run(repository: Repository, _: Expected) -> Iterator[Finding]:
        for model in repository.models.values():
            # A directory that is no model at all has one finding, from layout.stray.
            if model.looks_like_one():
                yield from check(repository, model)

    return run


def error(file: str, code: str, message: str, remedy: str, at: Node | None = None) -> Finding:
    """A finding that keeps the server from being started."""
    return _finding(Severity.ERROR, file, code, message, remedy, at)


def warning(file: str, code: str, message: str, remedy: str, at: Node | None = None) -> Finding:
    """A finding that lets it start."""
    return _finding(Severity.WARNING, file, code, message, remedy, at)


def note(file: str, code: str, message: str, remedy: str, at: Node | None = None) -> Finding:
    """A finding about something legitimate."""
    return _finding(Severity.NOTE, file, code, message, remedy, at)


def _finding(severity: Severity, file: str, code: str, message: str, remedy: str, at: Node | None) -> Finding:
    return Finding(code, severity, file, at.line if at else None, at.column if at else None, message, remedy)
