"""Which versions of models Prometheus gets the metrics of. Servers report them, and may lie."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from triton_operator.api.servers import IndexEntry
from triton_operator.api.status import ModelStatus
from triton_operator.render.series import Pair, usable

REMEMBERED = timedelta(hours=3)
"""How long a version stays in the list after a server last reported it. Prometheus keeps its series in memory for up to
three hours. So a server that reports new versions all the time only fills its own room."""


def known(models: Iterable[ModelStatus | IndexEntry]) -> list[Pair]:
    """Returns the versions of models that the servers have reported."""
    return usable((model.name, model.version) for model in models)


def choose(
    listed: Mapping[Pair, datetime], found: Collection[Pair], entrypoint: str, room: int, now: datetime
) -> dict[Pair, datetime]:
    """Returns the versions that Prometheus keeps, at most `room`, and when each was last reported.

    The order: version 1 of the entry model, which an ensemble always has; the listed ones; other versions of the entry
    model and the next one, so that a rollout of it is measured from the beginning; all others.

    - `listed`: the current list. `found`: the versions that the servers report.
    """
    versions = [int(version) for name, version in found if name == entrypoint]
    first = [(entrypoint, "1")]
    following = [(entrypoint, str(number)) for number in (*sorted(versions), max(versions, default=1) + 1)]
    wanted = usable([*found, *first, *following])
    seen = {**listed, **dict.fromkeys(wanted, now)}
    kept = [pair for pair in sorted(listed) if now - seen[pair] < REMEMBERED]
    order = dict.fromkeys(pair for pair in (*first, *kept, *following, *wanted) if pair in seen)
    return {pair: seen[pair] for pair in list(order)[:room]}


def fair_share(total: int, wants: Mapping[str, int], key: str) -> int:
    """Returns what `key` may have of `total`: what it wants, if it wants no more than an equal share of the rest."""
    left, others = total, len(wants)
    for one, want in sorted(wants.items(), key=lambda item: item[1]):
        share = left // others
        if one == key or want > share:
            return min(wants[key], share)
        left, others = left - want, others - 1
    return 0
