"""Converts pydantic's JSON schema into a structural schema of Kubernetes."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from triton_operator.api.fields import EMBEDS, MODEL_CONFIG

from . import embedded, model_config

Schema = dict[str, Any]
_KEEP = {
    "type", "description", "default", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum",
    "maxItems", "minItems", "maxProperties", "required", "format", "x-kubernetes-int-or-string", "anyOf",
    "x-kubernetes-validations", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
}  # fmt: skip


def structural(model: type[BaseModel]) -> Schema:
    """Returns the schema of `model` for a CRD: without $ref, title and null, with all defaults."""
    raw = model.model_json_schema(by_alias=True)
    return _convert(raw, raw.get("$defs", {}))


def _convert(node: Schema, defs: dict[str, Schema]) -> Schema:
    node = _resolve(node, defs)
    if EMBEDS in node:
        description = {"description": " ".join(node["description"].split())} if "description" in node else {}
        name = node[EMBEDS]
        return {**description, **(model_config.schema() if name == MODEL_CONFIG else embedded.schema(name))}
    if node.get("x-kubernetes-int-or-string"):
        return {k: v for k, v in node.items() if k in _KEEP and v is not None}
    out = {k: v for k, v in node.items() if k in _KEEP and k != "anyOf" and v is not None}
    if "exclusiveMinimum" in node:
        # A number in JSON schema; in a structural schema, a flag for `minimum`.
        out |= {"minimum": node["exclusiveMinimum"], "exclusiveMinimum": True}
    if "description" in out:
        out["description"] = " ".join(out["description"].split())
    if "properties" in node:
        out["properties"] = {k: _convert(v, defs) for k, v in node["properties"].items()}
        if isinstance(out.get("default"), dict):
            out["default"] = _sparse(out["default"])
    if "items" in node:
        out["items"] = _convert(node["items"], defs)
        if out.get("default") == []:
            del out["default"]
    if isinstance(node.get("additionalProperties"), dict):
        out["additionalProperties"] = _convert(node["additionalProperties"], defs)
        if out.get("default") == {}:
            del out["default"]
    return out


def _sparse(default: Any) -> Any:
    """Removes the empty parts of a default. The rest must satisfy the CEL rules of its schema."""
    if not isinstance(default, dict):
        return default
    parts = {key: _sparse(value) for key, value in default.items()}
    return {key: value for key, value in parts.items() if value not in (None, [], {})}


def _resolve(node: Schema, defs: dict[str, Schema]) -> Schema:
    """Resolves $ref and `| None`. Keys next to the reference override those of its target."""
    while True:
        if "$ref" in node:
            target = defs[node["$ref"].rsplit("/", 1)[1]]
        elif "anyOf" in node and not node.get("x-kubernetes-int-or-string"):
            options = [o for o in node["anyOf"] if o.get("type") != "null"]
            if len(options) != 1:
                raise TypeError(f"a structural schema has no union: {node}")
            target = options[0]
        else:
            return node
        siblings = {k: v for k, v in node.items() if k not in ("$ref", "anyOf") and v is not None}
        node = {**target, **siblings}
