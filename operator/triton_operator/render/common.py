"""Metadata, selectors and status of the children."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_operator.api import names
from triton_operator.api.kinds import Kind
from triton_operator.api.types import TritonModel


def obj(model: TritonModel, kind: Kind, name: str = "", **fields: Any) -> dict[str, Any]:
    """Returns an object of `kind` that `model` owns, with `fields` at its root. `name`: by default that of `model`."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name or model.name,
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


def only_conditions(status: Mapping[str, Any]) -> dict[str, Any]:
    """Returns only the conditions of a child's status. Changes of the rest cause no reconcile."""
    return {k: status[k] for k in ("conditions",) if k in status}
