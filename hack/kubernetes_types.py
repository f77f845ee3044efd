"""Writes the fields of the Kubernetes types that a TritonModel embeds, as a real API server reports them (OpenAPI).

Run it again to support the fields of a newer Kubernetes: python hack/kubernetes_types.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support import controlplane  # noqa: E402
from support.api import Api  # noqa: E402

TARGET = ROOT / "operator/triton_operator/manifests/kubernetes_types.json"
_EMBEDDED = {"api/v1": "PodSpec", "apis/autoscaling/v2": "HorizontalPodAutoscalerBehavior"}
_LEFT_OUT = {"PodSpec": {"ephemeralContainers"}}
"""Fields that a pod template can't have."""
_ONLY = {"ObjectMeta": {"annotations", "labels"}}
"""Fields of a volume claim template's metadata that users may set."""
Json = dict[str, Any]


def types(api: Api) -> dict[str, dict[str, str]]:
    """Returns the fields of each type, as `string`, `[string]` (a list), `{string}` (a map) or the name of a type."""
    definitions: dict[str, dict[str, str]] = {}
    for path, name in _EMBEDDED.items():
        schemas = api.request("GET", f"/openapi/v3/{path}")["components"]["schemas"]
        full = next(full for full in schemas if full.endswith(f".{name}"))
        _add(full, schemas, definitions)
    return dict(sorted(definitions.items()))


def text(api: Api) -> str:
    """Returns the content of the file."""
    return json.dumps(types(api), indent=1) + "\n"


def _add(full: str, schemas: Json, definitions: dict[str, dict[str, str]]) -> str:
    name, schema = full.rpartition(".")[2], schemas[full]
    if schema.get("format") == "int-or-string" or "oneOf" in schema:
        return name
    if schema["type"] != "object":
        return str(schema["type"])
    if name not in definitions:
        definitions[name] = {}
        names = _ONLY.get(name, schema["properties"].keys()) - _LEFT_OUT.get(name, set())
        definitions[name] |= {
            field: _type(schema["properties"][field], schemas, definitions) for field in sorted(names)
        }
    return name


def _type(schema: Json, schemas: Json, definitions: dict[str, dict[str, str]]) -> str:
    if "allOf" in schema:
        [schema] = schema["allOf"]
    if "$ref" in schema:
        return _add(schema["$ref"].rpartition("/")[2], schemas, definitions)
    if "items" in schema:
        return f"[{_type(schema['items'], schemas, definitions)}]"
    if "additionalProperties" in schema:
        return f"{{{_type(schema['additionalProperties'], schemas, definitions)}}}"
    return str(schema["type"])


if __name__ == "__main__":
    with controlplane.running() as plane:
        TARGET.write_text(text(plane.api))
