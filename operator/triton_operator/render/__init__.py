"""Renders the children of a TritonModel. The functions are pure."""

from __future__ import annotations

from typing import Any

from triton_operator.api.types import TritonModel

from .children import CHILDREN
from .deployment import template_hash
from .facts import Facts
from .service import endpoint
from .template_choice import choose, runs

__all__ = ["Facts", "choose", "endpoint", "render", "runs", "template_hash"]


def render(model: TritonModel, facts: Facts) -> list[dict[str, Any]]:
    """Returns all children of `model`, in the order in which the operator applies them."""
    return [obj for child in CHILDREN for obj in child.render(model, facts)]
