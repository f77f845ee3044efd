"""What answers of a canary have in common with those of the other servers, for the status. Pure.

docs/decisions/0059-answers-of-a-canary.md
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from triton_operator.api.servers import Comparison
from triton_operator.api.status import AnswersStatus

_NAMED = 3
"""How many outputs and reasons the status names."""


def answers(found: Collection[Comparison], before: AnswersStatus | None) -> AnswersStatus | None:
    """Returns what was found at these servers, or `before` while it says about the same.

    A number is about the same while it has as many binary digits, so the status is written seldom.
    """
    exact, close, different, varying = (
        round(sum(getattr(one, field) for one in found)) for field in ("exact", "close", "different", "varying")
    )
    outputs, reasons = _sum(one.outputs for one in found), _sum(one.reasons for one in found)
    now = AnswersStatus(
        compared=exact + close + different,
        equal=exact + close,
        same=exact,
        varying=varying,
        not_compared=round(reasons.total()),
        message="; ".join(_words(outputs, reasons)),
    )
    if not any(_digits(now)):
        return before
    return now if before is None or _digits(now) != _digits(before) else before


def _digits(status: AnswersStatus) -> list[int]:
    """Returns the binary digits of the numbers of each kind of answers."""
    different, close = status.compared - status.equal, status.equal - status.same
    return [number.bit_length() for number in (status.same, close, different, status.varying, status.not_compared)]


def _sum(found: Iterable[Mapping[str, float]]) -> Counter[str]:
    total = Counter[str]()
    for numbers in found:
        total.update({name: round(number) for name, number in numbers.items()})
    return total


def _words(outputs: Counter[str], reasons: Counter[str]) -> Iterator[str]:
    if outputs:
        yield f"different: {_named(outputs)}"
    if reasons:
        yield f"not compared: {_named(reasons)}"


def _named(found: Counter[str]) -> str:
    """Returns the most frequent names with their numbers."""
    named = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return ", ".join(f"{name} ({number})" for name, number in named[:_NAMED]) + more
