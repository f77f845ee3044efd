"""JSON Schemas of Kubernetes' own types, for the values of the chart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Schema = dict[str, Any]
_FILE = Path(__file__).resolve().parents[2] / "operator/triton_operator/manifests/kubernetes_types.json"
_TYPES: dict[str, dict[str, str]] = json.loads(_FILE.read_text())


def of(name: str) -> Schema:
    """Returns the schema of `name`: a JSON type, a Kubernetes type, or `[name]` for a list and `{name}` for a map."""
    if name.startswith("["):
        return {"type": "array", "items": of(name[1:-1])}
    if name.startswith("{"):
        return {"type": "object", "additionalProperties": of(name[1:-1])}
    if name in ("Quantity", "IntOrString"):
        return {"type": ["string", "number"]}
    return {"$ref": f"#/definitions/{name}"} if name in _TYPES else {"type": name}


def definitions(schema: Schema) -> dict[str, Schema]:
    """Returns the definitions of all Kubernetes types that the schema uses. They refuse unknown fields."""
    schemas: dict[str, Schema] = {}
    pending = _used(schema)
    while pending:
        name = pending.pop()
        if name not in schemas:
            fields = {field: of(kind) for field, kind in _TYPES[name].items()}
            schemas[name] = {"type": "object", "additionalProperties": False, "properties": fields}
            pending |= _used(schemas[name])
    return dict(sorted(schemas.items()))


def _used(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(_used, schema))
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"].rpartition("/")[2]} if isinstance(schema.get("$ref"), str) else set()
    return own.union(*map(_used, schema.values()))
