"""The models of spec.server.loadModels that servers load when they start.

They are in a ConfigMap and not in the pod template, so that a change of them replaces no server. Each pod template has
a list of its own there, so that a change of both doesn't reach the servers of the previous template
(docs/decisions/0039-load-models-in-a-configmap.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_operator.api import names
from triton_operator.api.types import TritonModel

FOLDER = "/.triton-operator/load-models"
VOLUME = {"name": "load-models", "mountPath": FOLDER, "readOnly": True}
_FILE = "models"
LIST = f"{FOLDER}/{_FILE}"
"""The file with a model in each line."""
FIRST_KEY = "models"
"""The key of the list for a pod template of an earlier version, which mounts the whole ConfigMap."""


def name(model: TritonModel) -> str:
    """Returns the name of the ConfigMap."""
    return names.account(model.name)


def volumes(model: TritonModel) -> list[dict[str, Any]]:
    """Returns the volume of the ConfigMap, without the key of the list; none without a ConfigMap."""
    if not model.changes_models:
        return []
    return [{"name": VOLUME["name"], "configMap": {"name": name(model), "items": [{"key": "", "path": _FILE}]}}]


def with_key(pod_spec: dict[str, Any], key: str) -> dict[str, Any]:
    """Returns the spec of a pod template with `key` as that of its list, unless an earlier version has rendered it."""
    if _key(pod_spec) in (None, FIRST_KEY):
        return pod_spec
    items = [{"key": key, "path": _FILE}]
    return {
        **pod_spec,
        "volumes": [
            {**volume, "configMap": {**volume["configMap"], "items": items}} if is_list(volume) else volume
            for volume in pod_spec["volumes"]
        ],
    }


def key_of(pod_spec: Mapping[str, Any]) -> str:
    """Returns the key of the list that these pods mount; "" if they mount none."""
    return _key(pod_spec) or ""


def is_list(volume: Any) -> bool:
    """Returns whether this is the volume of the ConfigMap, or what the user's podTemplate has put in its place."""
    return isinstance(volume, Mapping) and volume.get("name") == VOLUME["name"]


def _key(pod_spec: Mapping[str, Any]) -> str | None:
    """Returns the key of the list, "" for one that isn't set yet; None without the ConfigMap."""
    volumes = pod_spec.get("volumes")
    for volume in volumes if isinstance(volumes, list) else ():
        match volume.get("configMap") if is_list(volume) else None:
            case {"items": [{"key": str(key), "path": "models"}]}:
                return key
            case {"name": str(), **rest} if "items" not in rest:
                return FIRST_KEY
    return None


def mounts(model: TritonModel) -> list[dict[str, Any]]:
    """Returns the mount of that volume."""
    return [VOLUME] if model.changes_models else []


def flags(model: TritonModel) -> list[str]:
    """Returns the flags of tritonserver for models that aren't in the ConfigMap."""
    return [] if model.changes_models else [f"--load-model={name}" for name in model.spec.server.load_models]


def check_flags(model: TritonModel) -> list[str]:
    """Returns the flag of the repository check in the pod with the models; none if there are no models."""
    if model.changes_models:
        return [f"--load-models-file={LIST}"]
    return [f"--load-models={','.join(model.spec.server.load_models)}"] if model.spec.server.load_models else []
