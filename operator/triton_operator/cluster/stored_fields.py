"""Removes the fields that the operator doesn't use. With a thousand TritonModels they would take most of the memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from triton_operator.api import names
from triton_operator.api.kinds import POD
from triton_operator.api.types import is_reserved
from triton_operator.render import children, load_models
from triton_operator.render.delivery import SHM

Object = dict[str, Any]

_POD_SPEC = ("name", "resources", "startupProbe")
_INIT_SPEC = (*_POD_SPEC, "restartPolicy")
_VOLUMES = frozenset({SHM["name"], load_models.VOLUME["name"]})
_FLAGS = ("--load-model=", "--model-control-mode=")
"""Flags of the operator that it reads in pods, beside those of the user."""
_MAX_FLAG = 512
_OUTLINE_METADATA = (
    "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
)  # fmt: skip
_FINALIZERS = 8
"""Maximum number of finalizers that `outline` keeps."""


def without_unused(obj: Object) -> Object:
    """Returns `obj` with only this operator's managedFields, and only the status fields that the operator reads.

    The other status fields change often, and must not cause reconciles.
    """
    kind, metadata = obj["kind"], dict(obj["metadata"])
    # `manager` is optional. Any client may write an entry without it.
    fields = [f for f in metadata.pop("managedFields", []) if f.get("manager") == names.FIELD_MANAGER]
    if fields and kind != names.KIND:
        metadata["managedFields"] = fields
    out = {**obj, "metadata": metadata}
    if kind in (names.KIND, POD.kind):
        if kind == POD.kind:
            out["spec"] = {
                **_pick(obj["spec"], ("serviceAccountName",)),
                "initContainers": [_pick(c, _INIT_SPEC) for c in obj["spec"].get("initContainers", [])],
                "containers": [_container(c) for c in obj["spec"]["containers"]],
                "volumes": [v for v in obj["spec"].get("volumes", []) if v.get("name") in _VOLUMES],
            }
        return out
    status = out.pop("status", {})
    child = children.BY_NAME.get(kind)
    return {**out, "status": child.status(status)} if child and child.status else out


def outline(obj: Object) -> Object:
    """Returns the identifying metadata of an object that is too large even after `without_unused`, and its controller.

    Keeps the status of a TritonModel, because the operator itself writes it. A pod looks as if it hasn't started.
    """
    metadata = obj["metadata"]
    out = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "metadata": {
            **_pick(metadata, _OUTLINE_METADATA),
            "finalizers": metadata.get("finalizers", [])[:_FINALIZERS],
            "ownerReferences": [r for r in metadata.get("ownerReferences", []) if r.get("controller")],
        },
        "spec": {"containers": []} if obj["kind"] == POD.kind else {},
    }
    return {**out, "status": obj.get("status") or {}} if obj["kind"] == names.KIND else out


def _container(container: Object) -> Object:
    """Returns what the operator reads of a container.

    Of the server's arguments that is the user's and which models it loads, and of the readiness probe whether it is a
    command.
    """
    arguments = container.get("args") or () if container["name"] == names.CONTAINER_SERVER else ()
    flags = [a[:_MAX_FLAG] for a in arguments if a.startswith(_FLAGS) or not is_reserved(a)]
    command = "exec" in (container.get("readinessProbe") or {})
    return {
        **_pick(container, _POD_SPEC),
        **({"args": flags} if flags else {}),
        **({"readinessProbe": {"exec": {}}} if command else {}),
    }


def _pick(source: Object, keys: Iterable[str]) -> Object:
    return {k: source[k] for k in keys if k in source}
