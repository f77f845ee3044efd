"""Types and functions that the checks share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from difflib import get_close_matches
from functools import lru_cache
from heapq import nsmallest
from itertools import islice, pairwise

from triton_repository_check.expected import Expected
from triton_repository_check.findings import Finding, Severity
from triton_repository_check.model import Model, Repository
from triton_repository_check.places import Node
from triton_repository_check.schema import ModelInstanceGroup

CODES = {
    "TR007": "a check can't judge a model",
}


MAX_FINDINGS = 1000
"""Maximum number of findings of a check for each model. Nobody reads more, and millions take a minute."""

Check = Callable[[Repository, Expected], Iterable[Finding]]
Checks = tuple[tuple[str, Check], ...]
"""Checks with their names."""


def each_model(check: Callable[[Repository, Model], Iterable[Finding]]) -> Check:
    """Returns a check of the repository that runs `check` on each model."""
    return each_model_expected(lambda repository, model, _: check(repository, model))


def each_model_expected(check: Callable[[Repository, Model, Expected], Iterable[Finding]]) -> Check:
    """Like `each_model`, for checks that also need the expectations."""

    def run(repository: Repository, expected: Expected) -> Iterator[Finding]:
        for model in repository.models.values():
            # layout.stray reports directories that are not models.
            if model.looks_like_model() and not model.unread:
                yield from despite_faults(islice(check(repository, model, expected), MAX_FINDINGS), model.directory)

    return run


def despite_faults(findings: Iterable[Finding], file: str) -> Iterator[Finding]:
    """Returns the findings of a check up to its end, or to an exception, such as RecursionError for nested source.

    One file that a check can't judge must not end the others. `file`: what the check looks at.
    """
    try:
        yield from findings
    except Exception as problem:
        why = f"a check can't judge it: {type(problem).__name__}"
        yield warning(file, "TR007", why, "simplify deeply nested expressions and huge numbers in its files")


def error(file: str, code: str, message: str, remedy: str, at: Node | None = None) -> Finding:
    """Returns a finding that prevents the start of the server."""
    return _finding(Severity.ERROR, file, code, message, remedy, at)


def warning(file: str, code: str, message: str, remedy: str, at: Node | None = None) -> Finding:
    """Returns a finding that doesn't prevent the start of the server."""
    return _finding(Severity.WARNING, file, code, message, remedy, at)


def note(file: str, code: str, message: str, remedy: str, at: Node | None = None) -> Finding:
    """Returns a finding about something valid."""
    return _finding(Severity.NOTE, file, code, message, remedy, at)


def on_cpu(model: Model, expected: Expected) -> bool:
    """Whether all instances of the model certainly run on the CPU."""
    groups = model.config.instance_group
    return expected.gpus == 0 or (bool(groups) and all(g.kind == ModelInstanceGroup.KIND_CPU for g in groups))


def near(word: str, words: Collection[str], alike: float = 0.6) -> str:
    """Returns the most similar one of `words`, or an empty string if none is similar.

    Skips long words and long lists, and compares only the words with the most common pairs of characters: comparing
    takes long. `alike`: how similar, as for difflib.
    """
    if len(word) > _MAX_LENGTH or len(words) > _MAX_KNOWN:
        return ""
    pairs = _pairs(word)

    def distance(other: str) -> tuple[float, str]:
        theirs = _pairs(other)
        return -len(pairs & theirs) / (len(pairs) + len(theirs)), other

    likely = nsmallest(_MAX_COMPARED, (other for other in words if len(other) <= _MAX_LENGTH), distance)
    return next(iter(get_close_matches(word, likely, 1, alike)), "")


@lru_cache(4096)
def _pairs(word: str) -> frozenset[str]:
    """Returns the pairs of neighbours in a word, with its start and end."""
    return frozenset(map("".join, pairwise(f"\n{word}\n")))


def did_you_mean(word: str, words: Collection[str]) -> str:
    """Returns `did you mean …?` with the most similar one of `words`, or an empty string if none is similar."""
    match = near(word, words)
    return f"did you mean {match!r}?" if match else ""


def instead(word: str, words: Collection[str], what: str) -> str:
    """Returns what to use instead of `word`: the most similar one of `words`, or e.g. `use a declared input: A, B`."""
    others = f"use {what}: {listed(sorted(words))}" if words else "remove it, because there is none"
    return did_you_mean(word, words) or others


def listed(words: Collection[object], nothing: str = "none") -> str:
    """Returns the first of `words` as text for a message: `a, b and 3 more`."""
    more = len(words) - _MAX_LISTED
    return (", ".join(map(str, islice(words, _MAX_LISTED))) or nothing) + (f" and {more} more" if more > 0 else "")


_MAX_LENGTH, _MAX_KNOWN, _MAX_COMPARED, _MAX_LISTED = 64, 256, 4, 16


def _finding(severity: Severity, file: str, code: str, message: str, remedy: str, at: Node | None) -> Finding:
    return Finding(code, severity, *(at.within(file) if at else (file, None, None)), message, remedy)
