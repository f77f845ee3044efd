"""Renders the children of a TritonModel. The functions are pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triton_operator.api.types import TritonModel

from .children import CHILDREN
from .deployment import template_hash
from .facts import Facts
from .service import endpoint
from .template_choice import choose, runs

__all__ = ["Facts", "choose", "endpoint", "render", "runs", "template_hash"]


def render(model: TritonModel, facts: Facts, others: Sequence[tuple[TritonModel, Facts]] = ()) -> list[dict[str, Any]]:
    """Returns all children of `model`, in the order in which the operator applies them.

    `others`: further groups of servers, each with the TritonModel as these servers should have it.
    """
    return [
        obj
        for child in CHILDREN
        for group in ((model, facts), *(others if child.of_each_group else ()))
        for obj in child.render(*group)
    ]
