"""What the fields of a TritonModel are made of."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema
from pydantic.alias_generators import to_camel

from . import quantity

NO_SPACE = r"^[^ \t-\r]+$"
"""Not by \\s, which is the space of ASCII to the API server and that of Unicode to others."""


def rule(cel: str, message: str) -> dict[str, JsonValue]:
    """One CEL rule of the CRD; the message is all that the user sees of it."""
    return {"rule": cel, "message": message}


def config(*rules: dict[str, JsonValue]) -> ConfigDict:
    """How a type is read and written, and the CEL rules that it has in the CRD."""
    return ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        use_attribute_docstrings=True,
        json_schema_extra={"x-kubernetes-validations": [*rules]} if rules else None,
    )


class Base(BaseModel):
    """camelCase outside, snake_case inside; unknown fields are the API server's to refuse."""

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
_DEEPEST = 50
"""Levels of what has no schema. Nothing that is meant has a dozen; the API server takes thousands."""


def _not_deep(value: dict[str, Any]) -> dict[str, Any]:
    if _deeper(value, _DEEPEST):
        raise ValueError(f"is nested deeper than {_DEEPEST} levels")
    return value


def _deeper(value: Any, levels: int) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 0 or _deeper(item, levels - 1) for item in items if isinstance(item, dict | list))


Untyped = Annotated[
    dict[str, Any],
    AfterValidator(_not_deep),
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]
ModelName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^/ \t-\r]+$")]
_ONE_MODEL = "loadModels has one model per item, and a name has no comma: write [a, b] instead of ['a,b']"


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
"""A folder of the repository, or `*`. The check of the repository takes the names as one list, with commas."""
LabelValue = Annotated[str, Field(max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")]
