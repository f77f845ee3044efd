"""The schema of Kubernetes' own types in the CRD, with bounds.

hack/kubernetes_types.py reads the fields from an API server.

- No field is required or has a default, and each may be null: the operator merges the user's value into the rendered
  object, and null removes a field.
- The API server validates the values when the operator writes the rendered object. So this schema doesn't refuse values
  that a newer Kubernetes allows.
- The bounds are above the sizes of real pods, and limit the size of a TritonModel.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from triton_operator.api import quantity

Schema = dict[str, Any]
_TYPES: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "kubernetes_types.json").read_text())
_INT_OR_STRING = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
_QUANTITY = {
    # A structural schema has no type for strings, integers and decimals such as `cpu: 0.5`. This allows any value, but
    # maps and lists must be empty.
    "x-kubernetes-preserve-unknown-fields": True, "maxItems": 0, "maxProperties": 0,
    "pattern": quantity.PATTERN, "maxLength": 32,
}  # fmt: skip
_MAX_ITEMS = 64
"""Maximum number of items of a list, and of entries of a map."""
_MAX_ITEMS_OF = {"args": 128, "command": 128, "containers": 16, "env": 128, "initContainers": 16, "values": 128}
_MAX_LENGTH = 4096
"""Maximum length of a string."""
_MAX_LENGTH_OF = {
    # Scripts, and files in variables. Linux allows 128 KiB for one.
    "args": 32768, "command": 32768, "value": 32768,
    "annotations": 16384,
    "matchLabels": 63, "nodeSelector": 63,
    # Labels have at most 63 characters, node names more.
    "values": 253,
}  # fmt: skip


def schema(name: str) -> Schema:
    """Returns the structural schema of the Kubernetes type `name`."""
    properties = {field: {**_schema(of, field), "nullable": True} for field, of in _TYPES[name].items()}
    return {"type": "object", "properties": properties}


def _schema(of: str, field: str) -> Schema:
    if of.startswith("["):
        return {"type": "array", "maxItems": _MAX_ITEMS_OF.get(field, _MAX_ITEMS), "items": _schema(of[1:-1], field)}
    if of.startswith("{"):
        return {"type": "object", "maxProperties": _MAX_ITEMS, "additionalProperties": _schema(of[1:-1], field)}
    if of == "string":
        return {"type": "string", "maxLength": _MAX_LENGTH_OF.get(field, _MAX_LENGTH)}
    if of == "Quantity":
        return _QUANTITY
    if of == "IntOrString":
        return {**_INT_OR_STRING, "maxLength": _MAX_LENGTH}
    return schema(of) if of in _TYPES else {"type": of}
