"""Types and CEL rules for the fields of a TritonModel."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationInfo, WithJsonSchema
from pydantic.alias_generators import to_camel

from . import quantity

NO_SPACE = r"^[^ \t-\r]+$"
"""Doesn't use \\s, which means ASCII whitespace to the API server and Unicode whitespace to Python."""


RUNNING = "running"
"""The context of the validation of a spec with which servers run."""
_T = TypeVar("_T")


def refused_if_new(check: Callable[[_T], _T]) -> AfterValidator:
    """Returns the validator `check` of a value that the operator can read although it refuses it.

    With the context RUNNING it isn't refused: an earlier version accepted it, and the servers run with it.
    """

    def validate(value: _T, info: ValidationInfo) -> _T:
        return value if info.context == RUNNING else check(value)

    return AfterValidator(validate)


def rule(cel: str, message: str, naming: str = "") -> dict[str, JsonValue]:
    """One CEL rule of the CRD. Users see only the message, after the text of the CEL expression `naming`."""
    expression = {"messageExpression": f"{naming} + {json.dumps(message)}"} if naming else {}
    return {"rule": cel, "message": message, **expression}


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


def _short_exponent(value: str | int | float) -> str | int | float:
    if isinstance(value, str) and not re.search(quantity.PATTERN, value):
        raise ValueError("may have at most two digits in its exponent")
    return value


Quantity = Annotated[
    str | int | float,
    AfterValidator(_amount),
    refused_if_new(_short_exponent),
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
MODEL_CONFIG = "ModelConfig"
"""Triton's type of config.pbtxt."""
SETTABLE: Mapping[str, str] = {
    "max_batch_size": "The largest batch that Triton sends to the model. Between 0 and another number it changes the "
    "shapes that clients see.",
    "instance_group": "How many instances run the model, and on which devices.",
    "dynamic_batching": "How Triton makes batches of waiting requests, and how many may wait. {} for the defaults.",
    "parameters": "Parameters of the backend or of model.py, by name: {string_value: text}. Others stay.",
    "optimization": "What the backend may do to be faster, such as TensorRT, graphs, or threads of ONNX Runtime.",
    "version_policy": "Which versions of the model Triton serves.",
    "default_model_filename": "The name of the model file in the folder of a version, such as model.fp16.onnx.",
    "response_cache": "Whether the model uses the server's cache of responses.",
    "model_warmup": "Requests that Triton sends to the model before it is ready.",
}
"""The fields of config.pbtxt that spec.models may set, and what they are. They don't change what clients and ensembles
rely on: the tensors and their types, and how often a request is answered."""
_MAX_SETTINGS = 96 << 10
"""The maximum size of the fields of one model. Linux allows 128 KiB for an argument of a program."""


def as_argument(value: Any) -> str:
    """Returns a value as JSON for an argument of a container, in which Kubernetes replaces `$$` and `$(NAME)`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.replace("$", "\\u0024")


def _settable(config: dict[str, Any]) -> dict[str, Any]:
    for field in config:
        if field not in SETTABLE:
            raise ValueError(f"{field} can't be set here, but only in config.pbtxt; here are {', '.join(SETTABLE)}")
    if len(as_argument(config).encode(errors="replace")) > _MAX_SETTINGS:
        raise ValueError(f"has more than {_MAX_SETTINGS >> 10} KiB, in which a dollar sign counts six times")
    return config


ModelSettings = Annotated[_Embedded, refused_if_new(_settable), _embedded(MODEL_CONFIG)]
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
    refused_if_new(_one_model),
]
"""A folder of the repository, or `*`. The repository check gets the names as a list separated by commas."""
LabelValue = Annotated[str, Field(max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")]
