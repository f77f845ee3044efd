"""What the spec leaves open and a rendering needs: decided once, then read back from the Deployment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from ..api import names
from ..api.types import TritonModel

Delivery = Literal["Copy", "ImageVolume"]


@dataclass(frozen=True)
class Choices:
    """`tools_image`: the operator's own image, for the pods' init containers. `delivery`: Auto, resolved."""

    tools_image: str
    delivery: Delivery


def choose(model: TritonModel, live: Mapping[str, Any] | None, fresh: Choices) -> Choices:
    """The choices for `model`: those of the live Deployment where it has some, so that neither a new version
    of the operator nor a change of the nodes restarts a server; else `fresh`.

    `fresh.delivery` is what Auto means on this cluster today.
    """
    recorded = (live or {}).get("metadata", {}).get("annotations", {})
    asked = model.spec.model_image.delivery
    kept = recorded.get(names.ANNOTATION_DELIVERY)
    if asked != "Auto":
        delivery: Delivery = asked
    else:
        delivery = cast(Delivery, kept) if kept in ("Copy", "ImageVolume") else fresh.delivery
    return Choices(recorded.get(names.ANNOTATION_TOOLS_IMAGE) or fresh.tools_image, delivery)
