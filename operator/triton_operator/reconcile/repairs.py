"""Which repairs of servers are still to be reported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from triton_operator.api.status import RepairStatus
from triton_operator.decisions.memory import Memory
from triton_operator.pods import Pod
from triton_operator.pods.problems import repair_of
from triton_operator.pods.replacements import replacement_of


def unreported(
    pods: Iterable[Pod],
    deployment: Mapping[str, Any] | None,
    before: RepairStatus | None,
    memory: Memory,
    now: datetime,
) -> tuple[list[RepairStatus], frozenset[tuple[str, str]]]:
    """Returns the repairs that nobody has reported, the first one first, and the next `Memory.reported_repairs`.

    Several servers may restart in the same second, and a kubelet may report the end of one later than that of another,
    so the newest one in the status doesn't say which. `before`: that one; a new leader knows no other. `deployment`:
    as for `last_repair`.
    """
    repairs = {(r.server, r.time): r for pod in pods if pod.is_alive and (r := repair_of(pod))}
    if (replaced := replacement_of(deployment, now)) is not None:
        repairs[replaced.server, replaced.time] = replaced
    if (evicted := memory.evicted) is not None:
        repairs[evicted.server, evicted.time] = evicted
    if (reported := memory.reported_repairs) is None:
        reported = frozenset(key for key in repairs if before is not None and key[1] <= before.time)
    new = sorted((repairs[key] for key in repairs.keys() - reported), key=lambda repair: (repair.time, repair.server))
    return new, frozenset(repairs)
