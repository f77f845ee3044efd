"""The objects that a TritonModel stands for. Pure: the same spec and choices give the same objects."""

from __future__ import annotations

from typing import Any

from triton_operator.api.types import TritonModel

from .choices import Choices
from .choose import choose
from .deployment import deployment
from .disruption_budget import disruption_budget
from .service import endpoint, services
from .service_account import service_account

__all__ = ["Choices", "choose", "endpoint", "render"]


def render(model: TritonModel, choices: Choices) -> list[dict[str, Any]]:
    """All objects of `model`, in the order in which they are applied."""
    budget = disruption_budget(model, choices)
    return [
        service_account(model),
        *services(model),
        deployment(model, choices),
        *([budget] if budget else []),
    ]
