"""Limits how fast the engine Direct adds servers: `behavior` of the HorizontalPodAutoscaler."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Timeline = tuple[tuple[float, int], ...]
"""A number over time: each entry is the time of a change and the value from then on."""
_POLICIES = ({"type": "Percent", "value": 100, "periodSeconds": 15},)
LONGEST_SECONDS = 3600.0
"""The longest window of a HorizontalPodAutoscaler."""


def record(timeline: Timeline, now: float, value: int) -> Timeline:
    """Returns `timeline` with the value at `now`, without what ended before the longest window."""
    entries = timeline if timeline and timeline[-1][1] == value else (*timeline, (now, value))
    begin = next((n for n in range(len(entries) - 1, 0, -1) if entries[n][0] <= now - LONGEST_SECONDS), 0)
    return entries[begin:]


def values(timeline: Timeline, now: float, seconds: float) -> list[int]:
    """Returns the values of the last `seconds`."""
    ends = [at for at, _ in timeline[1:]] + [math.inf]
    return [value for (_, value), end in zip(timeline, ends, strict=True) if end > now - seconds]


def at_most(replicas: Timeline, now: float, scale_up: Mapping[str, Any]) -> int:
    """Returns the number of servers that the policies of `behavior.scaleUp` allow now.

    `replicas`: the number of servers over time, until `now`.
    """
    if scale_up.get("selectPolicy") == "Disabled":
        return replicas[-1][1]
    limits = [_allowed(policy, replicas, now) for policy in scale_up.get("policies") or _POLICIES]
    return max(replicas[-1][1], (min if scale_up.get("selectPolicy") == "Min" else max)(limits))


def _allowed(policy: Mapping[str, Any], replicas: Timeline, now: float) -> int:
    before, value = min(values(replicas, now, policy["periodSeconds"])), int(policy["value"])
    return before + value if policy["type"] == "Pods" else math.ceil(before * (100 + value) / 100)
