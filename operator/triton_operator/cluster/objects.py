"""What identifies an object, and the TritonModel that it belongs to."""

from __future__ import annotations

from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind

Object = dict[str, Any]
Key = str
"""namespace/name of a TritonModel."""
ObjectId = tuple[str, str]
"""Kind and name."""


def controller(obj: Object, kind: Kind = kinds.TRITON_MODEL) -> Object | None:
    """Returns the owner reference to the controller of `obj`; None if it has no controller of this kind."""
    references: list[Object] = obj["metadata"].get("ownerReferences", [])
    return next(
        (
            r
            for r in references
            if r.get("controller") and r["kind"] == kind.kind and r["apiVersion"].split("/")[0] == kind.group
        ),
        None,
    )


def owner(obj: Object) -> Key | None:
    """Returns the key of the TritonModel that an object belongs to; None if there is none.

    It is the object itself, its controller, or, for pods and objects without a controller, the name in the label.
    """
    metadata = obj["metadata"]
    if obj["kind"] == names.KIND:
        return f"{metadata['namespace']}/{metadata['name']}"
    reference, labels = controller(obj), metadata.get("labels", {})
    name = reference["name"] if reference else labels.get(names.LABEL_MODEL)
    return f"{metadata['namespace']}/{name}" if name else None


def id_of(obj: Object) -> ObjectId:
    """Returns what identifies an object among those of its TritonModel."""
    return obj["kind"], obj["metadata"]["name"]


def state(obj: Object) -> str:
    """Identifies a state of an object: uid and resourceVersion, as Entry.state."""
    return f"{obj['metadata']['uid']} {obj['metadata'].get('resourceVersion', '')}"


def namespace_of(key: Key) -> str:
    return key.partition("/")[0]


def uid_of(obj: Any) -> str:
    """Returns the uid of a value that may not be an object; "" without one."""
    try:
        return str(obj["metadata"]["uid"])
    except (KeyError, TypeError):
        return ""


def described(obj: Any) -> str:
    """Returns namespace/name of a value that may not be an object."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    fields = metadata if isinstance(metadata, dict) else {}
    return f"{fields.get('namespace', '')}/{fields.get('name', '')}"
