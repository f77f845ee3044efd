"""What the spec leaves open and a rendering needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Delivery = Literal["Copy", "ImageVolume"]


@dataclass(frozen=True)
class Choices:
    """`tools_image`: the operator's own image, for the pods' init containers. `delivery`: Auto, resolved.
    `replicas`: how many servers there shall be, by the spec or by whatever else scales."""

    tools_image: str
    delivery: Delivery
    replicas: int = 1
