"""The table of reasons: what conditions and Events say about a TritonModel in one word."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Literal

Severity = Literal["Normal", "Warning"]


@dataclass(frozen=True)
class Reason:
    """An entry of reasons.toml, which describes the fields."""

    name: str
    meaning: str
    on: tuple[str, ...] = ()
    todo: str = ""
    severity: Severity = "Warning"
    step: bool = False
    of: str = ""
    from_prometheus: bool = False


def _read() -> tuple[Reason, ...]:
    text = resources.files(__package__).joinpath("reasons.toml").read_text(encoding="utf-8")
    return tuple(Reason(**{**entry, "on": tuple(entry.get("on", ()))}) for entry in tomllib.loads(text)["reason"])


TABLE = _read()
STEPS = frozenset(reason.name for reason in TABLE if reason.step)
"""Reasons that come and go by themselves."""
_SEVERITIES = {reason.name: reason.severity for reason in TABLE}


def severity(reason: str, status: str) -> Severity:
    """Returns the severity of an Event. `status`: that of the condition, for reasons of other components."""
    return _SEVERITIES.get(reason, "Normal" if status == "True" else "Warning")
