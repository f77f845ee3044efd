"""Lists of Kubernetes objects that merge by a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LIST_KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "protocol"),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "resourceClaims": ("name",),
}
"""Field name → the fields of an item that identify it (Kubernetes' x-kubernetes-list-map-keys). Other lists are
replaced as a whole."""
_DEFAULTS = {"protocol": "TCP"}
"""Values of key fields that an item may omit."""


def key_of(item: Any, fields: tuple[str, ...]) -> tuple[str | int, ...] | None:
    """Returns the values of the key `fields` of an item; None if it isn't an object, or lacks one of them."""
    if not isinstance(item, Mapping):
        return None
    values = tuple(item.get(field, _DEFAULTS.get(field)) for field in fields)
    return values if all(isinstance(value, str | int) for value in values) else None
