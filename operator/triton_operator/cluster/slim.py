"""Objects without what the operator never looks at: of a thousand resources, that is most of the memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from triton_operator.api import names
from triton_operator.api.kinds import POD
from triton_operator.render import children

Object = dict[str, Any]

_POD_SPEC = ("name", "resources", "startupProbe")


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


def _pick(source: Object, keys: Iterable[str]) -> Object:
    return {k: source[k] for k in keys if k in source}
