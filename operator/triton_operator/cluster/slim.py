"""Objects without what the operator never looks at: of a thousand resources, that is most of the memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from triton_operator.api import names
from triton_operator.api.kinds import AUTOSCALER, POD

Object = dict[str, Any]

_POD_SPEC = ("name", "resources", "startupProbe")


def slim(obj: Object) -> Object:
    """`obj` with only this operator's managedFields, and pods with only what status is made from."""
    metadata = dict(obj["metadata"])
    fields = [f for f in metadata.pop("managedFields", []) if f["manager"] == names.FIELD_MANAGER]
    if fields and obj["kind"] != names.KIND:
        metadata["managedFields"] = fields
    out = {**obj, "metadata": metadata}
    if obj["kind"] == POD.kind:
        out["spec"] = {
            "initContainers": [_pick(c, _POD_SPEC) for c in obj["spec"].get("initContainers", [])],
            "containers": [_pick(c, _POD_SPEC) for c in obj["spec"]["containers"]],
        }
    if obj["kind"] == AUTOSCALER.kind:
        # Its view of the metric changes every 15 s.
        out["status"] = _pick(obj.get("status", {}), ("conditions",))
    return out


def _pick(source: Object, keys: Iterable[str]) -> Object:
    return {k: source[k] for k in keys if k in source}
