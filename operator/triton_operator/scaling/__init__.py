"""Decides how many servers the engine Direct asks for. Pure."""

from __future__ import annotations

from .decision import SCALED_UP, Observed, ScaleDecision, State, decide

__all__ = ["SCALED_UP", "Observed", "ScaleDecision", "State", "decide"]
