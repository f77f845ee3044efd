"""What the spec leaves open and a rendering needs: decided once, then read back from the Deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Delivery = Literal["Copy", "ImageVolume"]


@dataclass(frozen=True)
class Choices:
    """`tools_image`: the operator's own image, for the pods' init containers. `delivery`: Auto, resolved."""

    tools_image: str
    delivery: Delivery
