"""The newest repair of a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from triton_operator.api.status import RepairStatus
from triton_operator.pods import Pod
from triton_operator.pods.problems import repair_of
from triton_operator.pods.replacements import replacement_of

_TOGETHER = timedelta(hours=1)
_REQUEST_ENDS_IT = (
    "a request may end the process: find it by the clients' failures. With spec.repair: Report no server restarts, and "
    "only this model fails"
)


def last_repair(
    living: Sequence[Pod],
    deployment: Mapping[str, Any] | None,
    before: RepairStatus | None,
    evicted: RepairStatus | None,
    now: str,
) -> RepairStatus | None:
    """Returns the newest repair of a server, also of one whose pod is gone.

    `deployment`: says for which server all were replaced.

    `before`, the newest one until now, counts as the oldest if it is later than `now` (the clock was set back).
    """
    if evicted:
        return evicted
    restarts = [
        repair
        for repair in (*map(repair_of, living), replacement_of(deployment, datetime.fromisoformat(now)))
        if repair
    ]
    newest = max(restarts, key=_age, default=None)
    if newest is None or (before and _age(newest) < _age(before) and before.time <= now):
        return before
    earliest = (datetime.fromisoformat(newest.time) - _TOGETHER).strftime("%Y-%m-%dT%H:%M:%SZ")
    same = [r for r in restarts if r.time >= earliest and _cause(r) == _cause(newest)]
    if len(same) < 2:
        return newest
    message = f"{newest.message}; {len(same)} servers restarted for this within an hour, so {_REQUEST_ENDS_IT}"
    return newest.model_copy(update={"message": message})


def _age(repair: RepairStatus) -> tuple[str, str]:
    return repair.time, repair.server


def _cause(repair: RepairStatus) -> str:
    """Returns the beginning of the message, which names the models whose processes died."""
    return repair.message.partition(" died")[0]
