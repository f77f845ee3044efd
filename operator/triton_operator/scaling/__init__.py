"""Decides how many servers the engine Direct asks for. Pure."""

from __future__ import annotations

from .decision import SCALED_UP, Decision, Observed, State, decide
from .demand import Subject

__all__ = ["SCALED_UP", "Decision", "Observed", "State", "Subject", "decide"]
