"""Holds back writes that another writer undoes again and again: each one waits longer than the one before.

Without that, two writers that disagree about a field of the pod template replace the servers without end. Pure, except
that it keeps its results in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from triton_operator.api import kinds
from triton_operator.plan import Applied, Apply, Delete, Identity, identity, is_same_intent
from triton_operator.pods import Problem

_FREE, _FIRST = 3, timedelta(seconds=5)
"""How often a field is set back at once, and how long to wait before the next time."""
_FREE_TEMPLATE, _FIRST_TEMPLATE = 1, timedelta(seconds=20)
"""The same for the pod template: each change of it replaces servers."""
_MAX = timedelta(minutes=10)
_FORGET = timedelta(hours=1)
"""After this time without a change by the other writer, the next one is the first."""
_TOLD = timedelta(minutes=1)
"""How long, besides twice the waiting time, a contest is reported after the last change."""
_TEMPLATE, _REPLICAS = ".spec.template", ".spec.replicas"
Place = tuple[Identity, str]
"""An object, and the path of its contested field: two levels, "" if the object itself was deleted."""


@dataclass
class Contest:
    """What the operator has set back in one place.

    - `times`: how often, `last`: when last. `has_waited`: whether a write has waited; without, nothing is reported.
    - `path`, `writer`: the whole path and the field manager of the other writer; "" if they aren't known.
    """

    times: int
    last: datetime
    has_waited: bool = False
    path: str = ""
    writer: str = ""


@dataclass(frozen=True)
class HeldBack:
    """A write that waits, because another writer would undo it again."""

    step: Apply
    contest: Contest


@dataclass(frozen=True)
class Contested:
    """Result of `hold_back`.

    - `writes`: what is written now. `set_back`: the places of those that undo a change by another writer.
    - `held`: what waits.
    - `again`: the seconds until this changes; None if there is no contest.
    """

    writes: tuple[Apply | Delete, ...]
    set_back: tuple[Place, ...] = ()
    held: tuple[HeldBack, ...] = ()
    again: float | None = None


def hold_back(
    steps: Iterable[Apply | Delete],
    applied: Mapping[Identity, Applied],
    contests: dict[Place, Contest],
    now: datetime,
) -> Contested:
    """Decides which of the planned steps are made now."""
    for old in [place for place, contest in contests.items() if not timedelta() <= now - contest.last <= _FORGET]:
        del contests[old]
    writes, set_back, held = list[Apply | Delete](), list[Place](), list[HeldBack]()
    for step in steps:
        place = _place(step, applied)
        if place is None or not isinstance(step, Apply):
            writes.append(step)
            continue
        contest = contests.get(place)
        if contest is not None and now < contest.last + _delay(place, contest):
            contest.has_waited = True
            held.append(HeldBack(step, contest))
            continue
        set_back.append(place)
        writes.append(step)
    ends = [_end(place, contest) for place, contest in contests.items() if contest.has_waited]
    ends += [contest.last + _delay(place, contest) for place, contest in contests.items() if contest.has_waited]
    again = min((end - now for end in ends if end > now), default=None)
    return Contested(tuple(writes), tuple(set_back), tuple(held), None if again is None else again.total_seconds())


def count(places: Iterable[Place], contests: dict[Place, Contest], now: datetime) -> None:
    """Counts writes that have set something back."""
    for place in places:
        contest = contests.setdefault(place, Contest(0, now))
        contest.times, contest.last = contest.times + 1, now


def problems(contests: Mapping[Place, Contest], now: datetime) -> tuple[dict[str, Problem], dict[str, str]]:
    """Returns the contests to report, by kind: those that keep the spec from being in effect, and words about others.

    The words change only when the operator sets something back. Labels and annotations of an object change nothing
    that the spec says.
    """
    reported = [(place, contest) for place, contest in contests.items() if contest.has_waited]
    messages = [(place, _message(place, contest)) for place, contest in reported if now < _end(place, contest)]
    return (
        {kind: Problem("FieldContested", text) for ((kind, _), field), text in messages if not _is_metadata(field)},
        {kind: text for ((kind, _), field), text in messages if _is_metadata(field)},
    )


def _is_metadata(field: str) -> bool:
    return field.startswith(".metadata")


def _place(step: Apply | Delete, applied: Mapping[Identity, Applied]) -> Place | None:
    """Returns what the step sets back; None if it is no answer to a change by another writer."""
    if isinstance(step, Delete):
        return None
    before = applied.get(identity(step.desired))
    if before is None or not is_same_intent(step.desired, before):
        return None
    levels = step.why.partition("[")[0].split(".")[:3]
    return identity(step.desired), ".".join(levels) if step.live is not None else ""


def _delay(place: Place, contest: Contest) -> timedelta:
    free, first = (_FREE_TEMPLATE, _FIRST_TEMPLATE) if place[1] == _TEMPLATE else (_FREE, _FIRST)
    # A larger exponent would be more than a timedelta can hold.
    return min(first * 2 ** min(contest.times - free, 10), _MAX) if contest.times >= free else timedelta()


def _end(place: Place, contest: Contest) -> datetime:
    """Returns when the report of a contest ends, if the other writer changes nothing more."""
    return contest.last + 2 * _delay(place, contest) + _TOLD


def _message(place: Place, contest: Contest) -> str:
    (kind, name), field = place
    writer = contest.writer or "another client"
    often = "once" if contest.times == 1 else f"{contest.times} times"
    wait = f"it waits longer each time, now {_delay(place, contest).total_seconds():.0f} s"
    if not field:
        return f"{writer} deletes the {kind} {name}: the operator has created it again {often}, and {wait}"
    path = (contest.path or field).removeprefix(".")
    if (kind, field) == (kinds.DEPLOYMENT.kind, _REPLICAS):
        advice = "to leave the number of servers to it, remove spec.replicas from the TritonModel"
    else:
        advice = "make it leave the object alone, or set the value in the TritonModel"
    return f"{writer} changes {path} of the {kind} {name}: the operator has set it back {often}, and {wait}; {advice}"
