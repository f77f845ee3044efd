"""Thresholds as people write them."""

from __future__ import annotations

from typing import Any

from triton_operator.api import thresholds

from . import gen
from .api import Api, Object
from .people import Team

PREFIX = thresholds.PREFIX
MAX_QPS = f"{PREFIX}max-qps"


def annotate(api: Api, name: str = gen.NAME, /, **values: str | None) -> Object:
    """Sets annotations of thresholds, as `kubectl annotate` does; None removes one. Keys as in `spelled`."""
    return api.patch("TritonModel", name, {"metadata": {"annotations": spelled(values)}})


def spelled(values: dict[str, Any]) -> dict[str, Any]:
    """max_qps is the alias; the other kinds with their dashes as underscores."""
    return {k if k == "max_qps" else PREFIX + k.replace("_", "-"): v for k, v in values.items()}


def current(world: Team, name: str) -> dict[str, str]:
    """The annotations that are, or would be, thresholds."""
    found: dict[str, str] = world.api().get("TritonModel", name)["metadata"].get("annotations", {})
    return {k: v for k, v in found.items() if thresholds.is_threshold(k)}
