"""Reads the load from the status of a HorizontalPodAutoscaler."""

from __future__ import annotations

from typing import Any

from triton_operator.api import quantity

Object = dict[str, Any]
_MOST = 1e6
"""Servers at full use for each server. More isn't a load, such as the number that overflowed without a server."""


def per_server(status: Object) -> float | None:
    """Returns the load of each server that the autoscaler has read, in servers at full use.

    Returns None if it isn't known. Without a ready server the controller divides by zero and writes the smallest int64.
    """
    metrics = [metric.get(metric.get("type", "").lower()) or {} for metric in status.get("currentMetrics") or ()]
    value = next((str(m["current"]["averageValue"]) for m in metrics if "averageValue" in m.get("current", {})), "")
    try:
        load = float(quantity.parse(value))
    except ValueError:
        return None
    return load if load <= _MOST else None
