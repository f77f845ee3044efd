"""Compares the values of a TritonModel with the schema of the CRD, as the API server does.

The types in api/ don't: they take "2" for 2, and hold parts of pods without a type. Lengths and patterns aren't
compared here, because the types do that for the fields that aren't Kubernetes' own. kubectl_triton/rules.py evaluates
the rules.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from triton_operator.api import quantity
from triton_operator.api.faults import BOOLEAN, LIST, MAP, NUMBER, QUANTITY, TEXT, WHOLE, Fault, wrong_type

from . import crd

Schema = dict[str, Any]
_OPEN = "x-kubernetes-preserve-unknown-fields"
RULES = "x-kubernetes-validations"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_METADATA: Schema = {
    "type": "object",
    _OPEN: True,
    "properties": {
        "name": {"type": "string"}, "namespace": {"type": "string"}, "labels": _TEXTS, "annotations": _TEXTS,
    },
}  # fmt: skip
_WORDS = {"string": TEXT, "integer": WHOLE, "number": NUMBER, "boolean": BOOLEAN, "array": LIST, "object": MAP}
_PORT = re.compile(r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*", re.ASCII)
_PORT_LENGTH = 15


@functools.cache
def schema() -> Schema:
    """Returns the schema of a TritonModel: that of the CRD, and the types of its metadata."""
    whole: Schema = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    properties = {"metadata": _METADATA, "spec": whole["properties"]["spec"]}
    return {"type": "object", _OPEN: True, "properties": properties, RULES: whole[RULES]}


def stored(document: Any) -> Any:
    """Returns a TritonModel (JSON) without the nulls that the API server drops before it sets defaults."""
    return _without_nulls(document, schema())


def faults(document: Any) -> Iterator[Fault]:
    """Yields the values of a TritonModel (JSON, as from `stored`) of a type that the API server refuses.

    Also names of ports that no pod can have, which it refuses when the operator writes the Deployment.
    """
    return _faults(document, schema(), "")


def unknown(document: Any) -> Iterator[str]:
    """Yields the paths of fields that a TritonModel doesn't have."""
    return _unknown(document, schema(), "")


def _inner(value: Any, schema: Schema, path: str) -> Iterator[tuple[Any, Any, Schema, str]]:
    """Yields the key, the value, the schema and the path of each part of a list or a map that has a schema."""
    if isinstance(value, dict):
        for key, part in value.items():
            inner = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            if inner:
                yield key, part, inner, f"{path}.{key}".removeprefix(".")
    elif isinstance(value, list) and "items" in schema:
        for index, part in enumerate(value):
            yield index, part, schema["items"], f"{path}[{index}]"


def _without_nulls(value: Any, schema: Schema) -> Any:
    parts = {key: (part, inner) for key, part, inner, _ in _inner(value, schema, "")}
    if isinstance(value, dict):
        dropped = {key for key, (part, inner) in parts.items() if part is None and not inner.get("nullable")}
        return {
            key: _without_nulls(part, parts[key][1]) if key in parts else part
            for key, part in value.items()
            if key not in dropped
        }
    if isinstance(value, list):
        return [_without_nulls(part, parts[index][1]) if index in parts else part for index, part in enumerate(value)]
    return value


def _faults(value: Any, schema: Schema, path: str) -> Iterator[Fault]:
    if message := _fault(value, schema):
        yield Fault(path, message)
        return
    for key, part, inner, place in _inner(value, schema, path):
        name = _port_name(key, part, schema)
        if message := _bad_port(name, is_number=key == "port"):
            yield Fault(place, message)
        else:
            yield from _faults(part, inner, place)


def _unknown(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if isinstance(value, dict) and "properties" in schema and _OPEN not in schema:
        yield from (f"{path}.{key}" for key in value if key not in schema["properties"])
    for _, part, inner, place in _inner(value, schema, path):
        yield from _unknown(part, inner, place)


def _fault(value: Any, schema: Schema) -> str:
    """Returns what is wrong with a value itself, or ""."""
    if value is None and schema.get("nullable"):
        return ""
    if schema.get("pattern") == quantity.PATTERN and _OPEN in schema:
        return "" if _is_quantity(value) else wrong_type(value, QUANTITY)
    types = ("string", "integer") if schema.get(_INT_OR_STRING) else (schema["type"],)
    if not any(_is(value, kind) for kind in types):
        return wrong_type(value, *(_WORDS[kind] for kind in types))
    return ""


def _is(value: Any, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return kind == "number" or (value == int(value) and -(2**63) <= value < 2**63)


def _is_quantity(value: Any) -> bool:
    if isinstance(value, str):
        return re.search(quantity.PATTERN, value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _port_name(key: Any, value: Any, schema: Schema) -> str:
    """Returns the name of a port in a field of an object: that of a container's port, or of the target of a probe."""
    fields = schema.get("properties", {})
    is_name = (key == "name" and "containerPort" in fields) or (key == "port" and _INT_OR_STRING in fields.get(key, {}))
    return value if is_name and isinstance(value, str) else ""


def _bad_port(name: str, *, is_number: bool) -> str:
    """Returns what is wrong with the name of a port, or "". `is_number`: whether a number may stand there, too."""
    if not name or (_PORT.fullmatch(name) and len(name) <= _PORT_LENGTH):
        return ""
    if is_number and name.isdecimal():
        return wrong_type(name, WHOLE)
    return (
        f"must be the name of a port: write at most {_PORT_LENGTH} lower-case letters, digits and single '-' between "
        "them, with at least one letter"
    )
