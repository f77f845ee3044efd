"""The PodDisruptionBudget."""

from __future__ import annotations

from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.types import TritonModel

from .child_type import Child
from .common import obj
from .facts import Facts


def disruption_budgets(model: TritonModel, facts: Facts) -> list[dict[str, Any]]:
    """Returns a PodDisruptionBudget, or none for a single replica, because it could block every drain."""
    if facts.replicas < 2:
        return []
    spec = {
        "maxUnavailable": model.spec.disruption.max_unavailable,
        "selector": {"matchLabels": names.selector(model.name)},
        # A pod that isn't ready serves no requests, so it must not block a drain.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return [obj(model, kinds.DISRUPTION_BUDGET, spec=spec)]


CHILD = Child(kinds.DISRUPTION_BUDGET, disruption_budgets)
