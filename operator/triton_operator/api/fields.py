"""Types and CEL rules for the fields of a TritonModel."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema
from pydantic.alias_generators import to_camel

from . import quantity

NO_SPACE = r"^[^ \t-\r]+$"
"""Doesn't use \\s, which means ASCII whitespace to the API server and Unicode whitespace to Python."""


def rule(cel: str, message: str) -> dict[str, JsonValue]:
    """One CEL rule of the CRD. Users see only the message."""
    return {"rule": cel, "message": message}


def config(*rules: dict[str, JsonValue]) -> ConfigDict:
    """Returns the pydantic configuration of a type, with its CEL rules in the CRD."""
    return ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        use_attribute_docstrings=True,
        json_schema_extra={"x-kubernetes-validations": [*rules]} if rules else None,
    )


class Base(BaseModel):
    """Base of the types: camelCase in JSON, snake_case in Python. The API server refuses unknown fields."""

    model_config = config()


def _amount(value: str | int | float) -> str | int | float:
    quantity.parse(value)
    return value


Quantity = Annotated[
    str | int | float,
    AfterValidator(_amount),
    WithJsonSchema(
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}],
         "pattern": quantity.PATTERN, "minimum": 0, "maxLength": 32}
    ),
]  # fmt: skip
IntOrPercent = Annotated[
    int | str,
    WithJsonSchema(
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}],
         "pattern": r"^[0-9]+%$", "minimum": 0, "maxLength": 8}
    ),
]  # fmt: skip
EMBEDS = "x-triton-embeds"
"""Key in a JSON schema: the name of the Kubernetes type of an object (manifests/embedded)."""
_DEEPEST = 50
"""Maximum nesting of an embedded object. Real values have fewer than 12 levels; objects that were stored without a
schema may have thousands."""


def _not_deep(value: dict[str, Any]) -> dict[str, Any]:
    if _deeper(value, _DEEPEST):
        raise ValueError(f"is nested deeper than {_DEEPEST} levels")
    return value


def _deeper(value: Any, levels: int) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 0 or _deeper(item, levels - 1) for item in items if isinstance(item, dict | list))


def _embedded(name: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "object", EMBEDS: name})


_Embedded = Annotated[dict[str, Any], AfterValidator(_not_deep)]
EnvVar = Annotated[_Embedded, _embedded("EnvVar")]
PodSpec = Annotated[_Embedded, _embedded("PodSpec")]
ScalingBehavior = Annotated[_Embedded, _embedded("HorizontalPodAutoscalerBehavior")]
ModelName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^/ \t-\r]+$")]
_ONE_MODEL = "loadModels needs one model per item, without commas: write [a, b] instead of ['a,b']"


def _one_model(name: str) -> str:
    if "," in name:
        raise ValueError(_ONE_MODEL)
    return name


ModelToLoad = Annotated[
    str,
    Field(
        min_length=1,
        max_length=253,
        pattern=r"^[^./\x00-\x20\x7f][^/\x00-\x20\x7f]*$",
        json_schema_extra={"x-kubernetes-validations": [rule("!self.contains(',')", _ONE_MODEL)]},
    ),
    AfterValidator(_one_model),
]
"""A folder of the repository, or `*`. The repository check gets the names as a list separated by commas."""
LabelValue = Annotated[str, Field(max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")]
