"""The engines of spec.autoscaling: what scales a TritonModel's servers. Pure.

An engine is a file in this folder with its `ENGINE`, a line in `table.py`, and its name in spec.autoscaling.engine.
"""

from __future__ import annotations

from .engine import Engine, Known, Scaled, Scaler, Verdict
from .table import BY_NAME, ENGINES, SCALERS, SETTINGS, of

__all__ = ["BY_NAME", "ENGINES", "SCALERS", "SETTINGS", "Engine", "Known", "Scaled", "Scaler", "Verdict", "of"]
