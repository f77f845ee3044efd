"""What the checks have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice

from triton_operator.repository.findings import Finding, Severity
from triton_operator.repository.model import Model, Repository
from triton_operator.repository.places import Node
from triton_operator.repository.versions import Version


@dataclass(frozen=True, slots=True)
class Expected:
    """What the pod wants of the repository."""

    entrypoint: str | None = None
    """spec.entrypoint."""
    load_models: tuple[str, ...] = ()
    """spec.server.loadModels; empty where Triton loads everything."""
    shared_memory: int | None = None
    """Bytes of /dev/shm; None where it isn't known."""
    gpus: int | None = None
    """Devices that Triton sees; None where it isn't known."""
    cpus: float | None = None
    """Cores that the server may use, its CPU limit; None where it has none or it isn't known."""
    response_cache: bool | None = None
    """Whether the server is started with --cache-config; None where it isn't known."""
    server: Version | None = None
    """The server's version; None where it isn't known."""

    @property
    def devices(self) -> int:
        """Devices to count with: one where it isn't known, as instances of KIND_GPU are at least that many."""
        return 1 if self.gpus is None else self.gpus


NOTHING = Expected()
"""No wishes: the repository is judged by itself."""

Check = Callable[[Repository, Expected], Iterable[Finding]]


def each_model(check: Callable[[Repository, Model], Iterable[Finding]]) -> Check:
    """A check of one model as a check of the repository."""

    def run(repository: Repository, _: Expected) -> Iterator[Finding]:
        for model in repository.models.values():
            # A directory that is no model at all has one finding, from layout.stray.
            if model.looks_like_one() and not model.unread:
                yield from check(repository, model)

    return run


def each_model_expected(check: Callable[[Repository, Model, Expected], Iterable[Finding]]) -> Check:
    """As `each_model`, for checks that also ask what the pod has."""

    def run(repository: Repository, expected: Expected) -> Iterator[Finding]:
        for model in repository.models.values():
            if model.looks_like_one() and not model.unread:
                yield from check(repository, model, expected)

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


def near(word: str, known: Collection[str]) -> str:
    """The nearest of `known`, or an empty string where none is near. Nobody has mistyped one of thousands, nor a name
    of a page, and to compare them takes for ever."""
    if len(word) > _LONGEST or len(known) > _MOST_KNOWN:
        return ""
    return next(iter(get_close_matches(word, sorted(k for k in known if len(k) <= _LONGEST), 1)), "")


def nearest(word: str, known: Collection[str]) -> str:
    """A question with the nearest of `known`, or an empty string where none is near."""
    found = near(word, known)
    return f"did you mean {found!r}?" if found else ""


def listed(words: Collection[object], nothing: str = "none") -> str:
    """`a, b and 3 more`: a few of `words`, in their order, for a sentence."""
    more = len(words) - _MOST_LISTED
    return (", ".join(map(str, islice(words, _MOST_LISTED))) or nothing) + (f" and {more} more" if more > 0 else "")


_LONGEST, _MOST_KNOWN, _MOST_LISTED = 100, 256, 16


def _finding(severity: Severity, file: str, code: str, message: str, remedy: str, at: Node | None) -> Finding:
    return Finding(code, severity, file, at.line if at else None, at.column if at else None, message, remedy)
