"""What was seen of one TritonModel in one pass: the input of every judgement in this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from triton_operator.api.servers import Index

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Problem:
    """Why something doesn't become true: one word for the phase, and the failing component's own words."""

    reason: str
    message: str


@dataclass(frozen=True)
class Observation:
    """`template`: hash of the pod template that is wanted. `indexes`: pod name → what its server answered;
    pods whose server doesn't answer are not in it. `refused`: what the API server refused to write."""

    template: str
    delivery: str
    deployment: Object | None = None
    pods: tuple[Object, ...] = ()
    indexes: Mapping[str, Index] = field(default_factory=dict)
    refused: Problem | None = None
