"""What several children and containers have: metadata, selectors, status, a security context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from triton_operator.api import names
from triton_operator.api.kinds import Kind
from triton_operator.api.types import TritonModel

CONTAINER_SECURITY: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
"""The security context of every container of the pods."""


def obj(
    model: TritonModel,
    kind: Kind,
    name: str = "",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Returns an object of `kind` that `model` owns, with `fields` at its root.

    `name`: by default that of `model`. It has spec.commonMetadata, below the operator's `labels` and `annotations`.
    """
    common = model.spec.common_metadata
    annotations = {**common.annotations, **(annotations or {})}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name or model.name,
            "namespace": model.namespace,
            "labels": {**common.labels, **names.labels(model.name), **(labels or {})},
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
            **({"annotations": annotations} if annotations else {}),
        },
        **fields,
    }


def is_newest(child: Mapping[str, Any], said: Mapping[str, Any]) -> bool:
    """Returns whether a condition is about the newest spec of a child."""
    generation = child["metadata"].get("generation", 0)
    return bool(said.get("observedGeneration", generation) >= generation)


def only(field: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Returns what keeps only this field of a child's status. Changes of the rest cause no reconcile."""
    return lambda status: {k: status[k] for k in (field,) if k in status}
