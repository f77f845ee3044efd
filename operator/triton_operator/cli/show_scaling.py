"""Says in plain words what scales a TritonModel, and what it decided last."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from triton_operator.api.status import CalibrationStatus, TritonModelStatus

from . import autoscaler_load

Object = dict[str, Any]
_NAME = "HorizontalPodAutoscaler"


def sentences(model: Object, seen: TritonModelStatus, autoscaler: Object | None, now: datetime) -> list[str]:
    """Returns the engine, its last decision, the state of the HorizontalPodAutoscaler, and the last calibration.

    Leaves out what there isn't.
    """
    measured = _calibration(seen.calibration, now) if seen.calibration else []
    return [*_engine(model, seen, autoscaler, now), *measured]


def _engine(model: Object, seen: TritonModelStatus, autoscaler: Object | None, now: datetime) -> list[str]:
    spec, direct = model["spec"].get("autoscaling"), seen.autoscaling
    if not spec:
        return []
    engine = spec.get("engine", "HPA")
    limits = f"{spec.get('min', 1)} to {spec.get('max', '?')} servers, utilization {spec.get('utilization', 0.75)}"
    lines = [f"scaling: engine {engine}, {limits}"]
    if direct:
        load = f", at a load of {direct.load}" if direct.load else ""
        lines.append(
            f"{engine}: {direct.reason} {_ago(direct.time, now)}{load}, not below {direct.desired}: {direct.message}"
        )
    return lines + (_autoscaler(autoscaler, now) if autoscaler else [])


def _autoscaler(found: Object, now: datetime) -> list[str]:
    status = found.get("status", {})
    if not status.get("conditions"):
        return [f"{_NAME}: hasn't reported a status yet"]
    numbers = f"wants {status.get('desiredReplicas', 0)} servers and has {status.get('currentReplicas', 0)}"
    changed = f"; last change {_ago(status['lastScaleTime'], now)}" if status.get("lastScaleTime") else ""
    measured = autoscaler_load.per_server(status)
    load = "" if measured is None else f", at a load of {measured:.3g} per server"
    lines = [f"{_NAME}: {numbers}{load}{changed}"]
    for one in status["conditions"]:
        if one["status"] != ("False" if one["type"] == "ScalingLimited" else "True"):
            lines.append(f"{_NAME}: {one['type']} {one['status']}, {one.get('reason', '')}: {one.get('message', '')}")
    return lines


def _calibration(found: CalibrationStatus, now: datetime) -> list[str]:
    state = "current" if found.current else "out of date" if found.time else "invalid"
    when = f" {_ago(found.time, now)}, for p99 of at most {found.target}" if found.time else ""
    return [f"calibration: {state},{when}: {found.message}" if when else f"calibration: {state}: {found.message}"]


def _ago(time: str, now: datetime) -> str:
    """Returns the age of `time` in words; `time` itself if it isn't one."""
    try:
        seconds = (now - datetime.fromisoformat(time)).total_seconds()
    except (ValueError, TypeError):
        return time
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"
