"""What node drains may take away."""

from __future__ import annotations

from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.types import TritonModel

from .choices import Choices
from .common import obj


def disruption_budget(model: TritonModel, choices: Choices) -> dict[str, Any] | None:
    """A PodDisruptionBudget, or None with a single replica: there it could only block every drain."""
    if choices.replicas < 2:
        return None
    spec = {
        "maxUnavailable": model.spec.disruption.max_unavailable,
        "selector": {"matchLabels": names.selector(model.name)},
        # A pod that isn't ready serves nobody: it must not keep a node from being drained.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return obj(model, kinds.DISRUPTION_BUDGET, spec=spec)
