"""Says in plain words what scales a TritonModel, and what it decided last."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from kubectl_triton import autoscaler_load
from triton_operator.api.status import CalibrationStatus, TritonModelStatus

Object = dict[str, Any]
_NAME = "HorizontalPodAutoscaler"


def sentences(model: Object, status: TritonModelStatus, autoscaler: Object | None, now: datetime) -> list[str]:
    """Returns the engine, its last decision, the state of the HorizontalPodAutoscaler, and the last calibration.

    Leaves out what there isn't.
    """
    calibration = _calibration(status.calibration, now) if status.calibration else []
    return [*_engine(model, status, autoscaler, now), *calibration]


def _engine(model: Object, status: TritonModelStatus, autoscaler: Object | None, now: datetime) -> list[str]:
    spec, decision = model["spec"].get("autoscaling"), status.autoscaling
    if not spec:
        return []
    engine = spec.get("engine", "HPA")
    limits = f"{spec.get('min', 1)} to {spec.get('max', '?')} servers, utilization {spec.get('utilization', 0.75)}"
    lines = [f"scaling: engine {engine}, {limits}"]
    if decision:
        load = f", at a load of {decision.load}" if decision.load else ""
        age = _ago(decision.time, now)
        lines.append(f"{engine}: {decision.reason} {age}{load}, not below {decision.desired}: {decision.message}")
    return lines + (_autoscaler(autoscaler, now) if autoscaler else [])


def _autoscaler(autoscaler: Object, now: datetime) -> list[str]:
    status = autoscaler.get("status", {})
    if not status.get("conditions"):
        return [f"{_NAME}: hasn't reported a status yet"]
    numbers = f"wants {status.get('desiredReplicas', 0)} servers and has {status.get('currentReplicas', 0)}"
    change = f"; last change {_ago(status['lastScaleTime'], now)}" if status.get("lastScaleTime") else ""
    load = autoscaler_load.per_server(status)
    note = "" if load is None else f", at a load of {load:.3g} per server"
    lines = [f"{_NAME}: {numbers}{note}{change}"]
    for condition in status["conditions"]:
        kind, value = condition["type"], condition["status"]
        if value != ("False" if kind == "ScalingLimited" else "True"):
            words = f"{condition.get('reason', '')}: {condition.get('message', '')}"
            lines.append(f"{_NAME}: {kind} {value}, {words}")
    return lines


def _calibration(calibration: CalibrationStatus, now: datetime) -> list[str]:
    state = "current" if calibration.current else "out of date" if calibration.time else "invalid"
    when = f", {_ago(calibration.time, now)}, for p99 of at most {calibration.target}" if calibration.time else ""
    return [f"calibration: {state}{when}: {calibration.message}"]


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
