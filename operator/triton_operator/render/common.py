"""What every object has: its names and its owner."""

from __future__ import annotations

from typing import Any

from triton_operator.api import names
from triton_operator.api.kinds import Kind
from triton_operator.api.types import TritonModel


def obj(model: TritonModel, kind: Kind, suffix: str = "", **fields: Any) -> dict[str, Any]:
    """An object of `kind` named after `model`, owned by it, with `fields` at its root."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": model.name + suffix,
            "namespace": model.namespace,
            "labels": names.labels(model.name),
            "ownerReferences": [
                {
                    "apiVersion": names.API_VERSION,
                    "kind": names.KIND,
                    "name": model.name,
                    "uid": model.metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        **fields,
    }
