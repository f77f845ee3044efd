"""The table of engines."""

from __future__ import annotations

from collections.abc import Mapping

from triton_operator.api.types import TritonModel

from . import direct, hpa, keda
from .engine import Engine, Scaler, Setting

ENGINES: tuple[Engine, ...] = (hpa.ENGINE, direct.ENGINE, keda.ENGINE)
BY_NAME: Mapping[str, Engine] = {engine.name: engine for engine in ENGINES}
SCALERS: tuple[Scaler, ...] = tuple({engine.scaler.kind: engine.scaler for engine in ENGINES}.values())
SETTINGS: tuple[Setting, ...] = tuple(setting for engine in ENGINES for setting in engine.settings)


def of(model: TritonModel) -> Engine | None:
    """Returns the engine that scales a TritonModel; None without one."""
    return None if model.scaling is None else BY_NAME[model.scaling.engine]
