"""Fields of the models' config.pbtxt that a spec sets."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pydantic import Field

from .fields import Base, ModelName, ModelSettings, refused_if_new


class ModelOverride(Base):
    """Fields of one model's config.pbtxt."""

    name: ModelName
    """The folder of the model in the repository."""
    config: ModelSettings
    """With the names of config.pbtxt. Messages are merged field by field and maps entry by entry; a list or any other
    value replaces that of the file. Without that file, Triton completes the rest as far as the backend can."""


def _distinct(models: list[ModelOverride]) -> list[ModelOverride]:
    if twice := [name for name, number in Counter(item.name for item in models).items() if number > 1]:
        raise ValueError(f"has two items for {min(twice)!r}: put their fields into one")
    return models


ModelOverrides = Annotated[
    list[ModelOverride],
    Field(
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    ),
    refused_if_new(_distinct),
]
