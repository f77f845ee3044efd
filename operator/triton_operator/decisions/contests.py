"""Holds back writes that another writer undoes again and again: each one waits longer than the one before.

Without that, two writers that disagree about a field of the pod template replace the servers without end. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from triton_operator.api import kinds
from triton_operator.plan import Applied, Apply, Delete, Identity, differences, identity, is_same_intent
from triton_operator.pods import Problem

_TEMPLATE, _REPLICAS = ".spec.template", ".spec.replicas"
_TOLD = timedelta(minutes=1)
"""How long, besides twice the waiting time, a contest is reported after the last change."""
Place = tuple[Identity, str]
"""An object, and the path of its contested field: two levels, "" if the object itself was deleted."""


@dataclass(frozen=True)
class _Pace:
    """How often a field is set back.

    - `free`: how often at once. `first`: how long to wait before the next time, and then twice as long, up to `most`.
    - `forget`: after this time without a change by the other writer, the next one is the first.
    """

    free: int
    first: timedelta
    most: timedelta
    forget: timedelta


_FIELD = _Pace(3, timedelta(seconds=5), timedelta(minutes=10), timedelta(hours=1))
_SERVERS = _Pace(1, timedelta(seconds=20), timedelta(hours=1), timedelta(days=1))
"""Of the pod template: each change of it replaces servers."""


@dataclass(frozen=True)
class Contest:
    """What the operator has set back in one place.

    - `times`: how often, `last`: when last. `waits`: whether a write waits now, `has_waited`: whether one did.
    - `path`, `writer`: the whole path and the field manager of the other writer; "" if nobody owns the field. Before
      the first look, `path` has None.
    """

    times: int
    last: datetime
    waits: bool = False
    has_waited: bool = False
    path: str | None = None
    writer: str = ""


@dataclass(frozen=True)
class HeldBack:
    """A write that waits, because another writer would undo it again. `place`: where, `contest`: the other writer."""

    step: Apply
    place: Place
    contest: Contest


@dataclass(frozen=True)
class Contested:
    """Result of `hold_back`.

    - `writes`: what is written now. `set_back`: the places of those that undo a change by another writer.
    - `held`: what waits.
    - `contests`: those of now.
    - `requeue_after`: the seconds until this changes; None if there is no contest.
    """

    writes: tuple[Apply | Delete, ...]
    set_back: tuple[Place, ...] = ()
    held: tuple[HeldBack, ...] = ()
    contests: Mapping[Place, Contest] = field(default_factory=dict)
    requeue_after: float | None = None


def hold_back(
    steps: Iterable[Apply | Delete],
    applied: Mapping[Identity, Applied],
    contests: Mapping[Place, Contest],
    now: datetime,
) -> Contested:
    """Decides which of the planned steps are made now. One waits only if each of the fields that differ does."""
    contests = _recent(contests, now)
    writes, set_back, held = list[Apply | Delete](), list[Place](), list[HeldBack]()
    for step in steps:
        places = _places(step, applied)
        if not places or not isinstance(step, Apply):
            if isinstance(step, Apply):
                # Another content is desired now, so that the two writers may agree.
                for old in [place for place in contests if place[0] == identity(step.desired)]:
                    del contests[old]
            writes.append(step)
            continue
        waiting = {place: contests[place] for place in places if place in contests and _waits(place, contests, now)}
        if len(waiting) < len(places):
            set_back += places
            writes.append(step)
            continue
        for place, contest in waiting.items():
            contests[place] = replace(contest, waits=True, has_waited=True)
            held.append(HeldBack(step, place, contests[place]))
    told = {place: contest for place, contest in contests.items() if _is_told(place, contest)}
    ends = [_end(place, contest) for place, contest in told.items()]
    ends += [contest.last + _delay(place, contest) for place, contest in told.items()]
    again = min((end - now for end in ends if end > now), default=None)
    seconds = None if again is None else again.total_seconds()
    return Contested(tuple(writes), tuple(set_back), tuple(held), contests, seconds)


def count(places: Iterable[Place], contests: Mapping[Place, Contest], now: datetime) -> dict[Place, Contest]:
    """Returns the contests after writes that have set something back in these places."""
    counted = dict(contests)
    for place in places:
        contest = counted.get(place, Contest(0, now))
        counted[place] = replace(contest, times=contest.times + 1, last=now)
    return counted


def problems(contests: Mapping[Place, Contest], now: datetime) -> tuple[dict[str, Problem], dict[str, str]]:
    """Returns the contests to report, by kind: those that keep the spec from being in effect, and words about others.

    The words change only when the operator sets something back. Labels and annotations of an object change nothing
    that the spec says.
    """
    refused, noted = dict[str, Problem](), dict[str, str]()
    for place, contest in contests.items():
        if _is_told(place, contest) and now < _end(place, contest):
            (kind, _), field = place
            if contest.waits and not field.startswith(".metadata"):
                refused.setdefault(kind, Problem("FieldContested", _message(place, contest)))
            else:
                noted.setdefault(kind, _message(place, contest))
    return refused, noted


def _recent(contests: Mapping[Place, Contest], now: datetime) -> dict[Place, Contest]:
    """Returns the contests that aren't over. Whether a write waits is decided again."""
    return {
        place: replace(contest, waits=False)
        for place, contest in contests.items()
        if timedelta() <= now - contest.last <= _pace(place).forget
    }


def _places(step: Apply | Delete, applied: Mapping[Identity, Applied]) -> set[Place]:
    """Returns what the step sets back; nothing if it is no answer to a change by another writer."""
    if isinstance(step, Delete):
        return set()
    own = identity(step.desired)
    before = applied.get(own)
    if before is None or not is_same_intent(step.desired, before):
        return set()
    if step.live is None:
        return {(own, "")}
    paths = differences(step.desired, step.live)
    return {(own, ".".join(path.partition("[")[0].split(".")[:3])) for path in paths}


def _pace(place: Place) -> _Pace:
    return _SERVERS if place[1] == _TEMPLATE else _FIELD


def _delay(place: Place, contest: Contest) -> timedelta:
    pace = _pace(place)
    # A larger exponent would be more than a timedelta can hold.
    over = min(contest.times - pace.free, 20)
    return min(pace.first * 2**over, pace.most) if over >= 0 else timedelta()


def _waits(place: Place, contests: Mapping[Place, Contest], now: datetime) -> bool:
    return now < contests[place].last + _delay(place, contests[place])


def _is_told(place: Place, contest: Contest) -> bool:
    """Returns whether the other writer has shown that it doesn't give in."""
    return contest.has_waited or contest.times > _pace(place).free


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
