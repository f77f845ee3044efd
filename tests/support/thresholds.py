"""Sets and reads threshold annotations."""

from __future__ import annotations

from typing import Any

from triton_operator.api import thresholds

from . import gen
from .api import Api, Object
from .people import Team

PREFIX = thresholds.PREFIX
MAX_QPS = f"{PREFIX}max-qps"


def annotate(api: Api, name: str = gen.NAME, /, **values: str | None) -> Object:
    """Sets threshold annotations, as `kubectl annotate` does. None removes one. Keys are as in `spelled`."""
    return api.patch("TritonModel", name, {"metadata": {"annotations": spelled(values)}})


def spelled(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the annotations for keyword arguments: `max_qps` is the alias, other kinds have dashes as underscores."""
    return {k if k == "max_qps" else PREFIX + k.replace("_", "-"): v for k, v in values.items()}


def current(world: Team, name: str) -> dict[str, str]:
    """Returns the annotations with keys of thresholds, valid or not."""
    values: dict[str, str] = world.api().get("TritonModel", name)["metadata"].get("annotations", {})
    return {key: value for key, value in values.items() if thresholds.is_threshold(key)}
