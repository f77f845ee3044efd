"""Objects without what the operator never looks at: of a thousand resources, that is most of the memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from triton_operator.api import names
from triton_operator.api.kinds import POD
from triton_operator.render import children

Object = dict[str, Any]

_POD_SPEC = ("name", "resources", "startupProbe")
_BRIEF_METADATA = (
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
)  # fmt: skip
_FINALIZERS = 8
"""Of an object that is kept in brief."""


def slim(obj: Object) -> Object:
    """`obj` with only this operator's managedFields, and only the status that anybody here reads: the rest of it
    changes often, and is no news."""
    kind, metadata = obj["kind"], dict(obj["metadata"])
    # `manager` is optional, and anybody may write an entry without it.
    fields = [f for f in metadata.pop("managedFields", []) if f.get("manager") == names.FIELD_MANAGER]
    if fields and kind != names.KIND:
        metadata["managedFields"] = fields
    out = {**obj, "metadata": metadata}
    if kind in (names.KIND, POD.kind):
        if kind == POD.kind:
            out["spec"] = {
                **_pick(obj["spec"], ("serviceAccountName",)),
                "initContainers": [_pick(c, _POD_SPEC) for c in obj["spec"].get("initContainers", [])],
                "containers": [_pick(c, _POD_SPEC) for c in obj["spec"]["containers"]],
            }
        return out
    status = out.pop("status", {})
    child = children.BY_NAME.get(kind)
    return {**out, "status": child.status(status)} if child and child.status else out


def brief(obj: Object) -> Object:
    """What is kept of an object that is too large for `slim`: which object it is, its controller, and the status of a
    TritonModel, which the operator has written itself. A pod looks like one that hasn't started."""
    metadata = obj["metadata"]
    out = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "metadata": {
            **_pick(metadata, _BRIEF_METADATA),
            "finalizers": metadata.get("finalizers", [])[:_FINALIZERS],
            "ownerReferences": [r for r in metadata.get("ownerReferences", []) if r.get("controller")],
        },
        "spec": {"containers": []} if obj["kind"] == POD.kind else {},
    }
    return {**out, "status": obj.get("status") or {}} if obj["kind"] == names.KIND else out


def _pick(source: Object, keys: Iterable[str]) -> Object:
    return {k: source[k] for k in keys if k in source}
