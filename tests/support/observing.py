"""Observations, written without their parts."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from triton_operator.api.servers import ServerAnswers
from triton_operator.api.types import TritonModel
from triton_operator.pods.group import Group
from triton_operator.status.observation import Observation, ObservedMonitoring, Scaler

_PARTS: dict[str, type[Any]] = {"servers": ServerAnswers, "scaler": Scaler, "monitoring": ObservedMonitoring}


def observation(model: TritonModel, template: str, delivery: str, **seen: Any) -> Observation:
    """Returns an observation of one group. `seen`: its fields, and the fields of its parts and of the group."""
    group = Group(seen.pop("deployment", None), seen.pop("pods", ()), template, model=model)
    for name, part in _PARTS.items():
        seen[name] = part(**{f.name: seen.pop(f.name) for f in fields(part) if f.name in seen})
    return Observation((group,), delivery, **seen)
