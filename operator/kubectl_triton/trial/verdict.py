"""Judges what came of the requests to a model. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from triton_repository_check.findings import Finding, Severity

from . import findings, messages
from .answers import wrong
from .messages import Fault, Kind
from .outcome import Outcome, Target
from .requests import Request, is_plain


class Step(StrEnum):
    """What a request tries."""

    VALUES = "values"
    """Values and sizes, which may be none that the model takes."""
    FORM = "form"
    """Another batch, or no optional input, with values that were answered."""
    OPTIONAL = "optional"
    """No optional input, where no request was answered so far."""
    AGAIN = "again"
    """A request that was answered, once more: at the same time as others, or after something else."""


@dataclass(frozen=True, eq=False, slots=True)
class Sent:
    """A request and what came of it. `words`: what was special, such as "at once with 15 others"; may be empty."""

    request: Request
    outcome: Outcome
    step: Step = Step.VALUES
    words: str = ""

    @property
    def text(self) -> str:
        """What the request is."""
        return f"{self.request.words}{', ' if self.words else ''}{self.words}"


def is_answered(sent: Sent) -> bool:
    """Whether a request was answered in time, and without an error."""
    return not sent.outcome.error and not sent.outcome.is_late


@dataclass(frozen=True, slots=True)
class Judged:
    """A finding without its requests, and which those are."""

    finding: Finding
    requests: str


def judge(
    target: Target, config: Any, sent: Sequence[Sent], models: Collection[str], before: Sequence[Sent] = ()
) -> list[Judged]:
    """Returns the findings about a model: one for each kind of failure.

    `models`: the directories of the repository. `before`: what was sent to the model, and judged, before.
    """
    groups: dict[tuple[object, ...], list[tuple[Finding, Sent]]] = {}
    context = _Context(
        target, is_plain(config), any(map(is_answered, sent)), _never_sent(config, (*before, *sent)), frozenset(models)
    )
    for one in sent:
        for what, finding in _findings(context, config, one):
            groups.setdefault((finding.code, finding.severity, finding.file, finding.line, what), []).append(
                (finding, one)
            )
    return [Judged(members[0][0], _requests([one for _, one in members], len(sent))) for members in groups.values()]


def _never_sent(config: Any, sent: Sequence[Sent]) -> frozenset[str]:
    """Returns the outputs that no response has."""
    seen = {output.name for one in sent for response in one.outcome.responses for output in response}
    return frozenset(output.name for output in config.output) - seen


def distinct(judged: Iterable[Judged]) -> list[Finding]:
    """Returns the findings with their requests, of those about the same line with the same words only the first."""
    first: dict[Finding, Judged] = {}
    for one in judged:
        first.setdefault(one.finding, one)
    return [replace(one.finding, message=f"{one.requests}: {one.finding.message}") for one in first.values()]


@dataclass(frozen=True, slots=True)
class _Context:
    """`is_plain`: see requests.is_plain. `answers`: whether any request was answered. `never`: outputs never sent."""

    target: Target
    is_plain: bool
    answers: bool
    never: frozenset[str]
    models: frozenset[str]


def _findings(context: _Context, config: Any, sent: Sent) -> Iterator[tuple[str, Finding]]:
    """Yields findings, each with what it is about: the words may have values of the request."""
    model, outcome = context.target.model, sent.outcome
    if outcome.is_late:
        yield "", findings.late(model, outcome.seconds, has_responses=bool(outcome.responses))
    elif outcome.error:
        fault = messages.read(outcome.error, context.models)
        if fault.kind is not Kind.QUEUE:
            finding = _failed(context, sent, fault)
            yield "" if finding.line or fault.kind is Kind.REFUSED else finding.message, finding
    else:
        for what, words, is_sure in wrong(config, sent.request, outcome, streams=context.target.streams):
            # A model may leave out an output for some values.
            never = (context.is_plain or sent.request.real) and what in {f"{name} missing" for name in context.never}
            is_error = is_sure or never
            yield what, findings.wrong(model, words, Severity.ERROR if is_error else Severity.WARNING)


def _failed(context: _Context, sent: Sent, fault: Fault) -> Finding:
    model, real = context.target.model, sent.request.real
    if fault.kind is Kind.DEAD:
        return findings.dead(model, fault)
    if fault.kind is Kind.REFUSED:
        if real or sent.step is Step.AGAIN or (context.is_plain and not context.answers):
            severity = Severity.ERROR
        else:
            severity = Severity.NOTE if context.answers and sent.step is not Step.FORM else Severity.WARNING
        return findings.refused(model, fault, severity)
    certain = (
        real
        or sent.step in (Step.FORM, Step.AGAIN)
        or fault.kind is Kind.PROGRAM
        or (context.is_plain and not context.answers)
    )
    return findings.failed(model, fault, Severity.ERROR if certain else Severity.WARNING)


def _requests(members: Sequence[Sent], count: int) -> str:
    how_many = "each request" if len(members) == count and count > 1 else f"{len(members)} of {count} requests"
    return f"{how_many} ({members[0].text})"
