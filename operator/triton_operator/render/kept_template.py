"""Keeps the pod template of running servers until the spec changes.

Otherwise an upgrade of the operator could restart every server of the cluster at once.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from triton_operator.api import names
from triton_operator.api.types import TritonModel

from . import exporters, load_models

NOT_IN_PODS = frozenset(
    {
        "replicas",
        "autoscaling",
        "monitoring",
        "service",
        "route",
        "canary",
        "network_policy",
        "disruption",
        "memory_growth",
    }
)
"""Fields of the spec that the pod template doesn't depend on; on `monitoring` by which exporters it adds."""
FIRST_DEFAULTS: Mapping[tuple[str, ...], Any] = {}
"""The first default of each field whose default has changed since the version in which the field came, by the path in
the spec. The API server has stored that default in older TritonModels, so a field with it is one that nobody set."""
_MAX_PACKED = 64 << 10
"""Kubernetes limits all annotations of an object together to 256 KiB."""
_MAX_UNPACKED = 1 << 20


def spec_hash(model: TritonModel, delivery: str) -> str:
    """Returns a hash of the spec fields that concern pods.

    It excludes fields with their first default, so that it stays the same when a later version adds fields or changes
    defaults.
    """
    spec = model.spec.model_dump(mode="json", by_alias=True, exclude=set(NOT_IN_PODS), exclude_defaults=True)
    if model.changes_models:
        spec["server"].pop("loadModels", None)
    if added := exporters.of(model):
        spec["monitoring"] = {exporter.field: {} for exporter in added}
    everything = model.spec.model_dump(mode="json", by_alias=True) if FIRST_DEFAULTS else {}
    for (*above, key), first in FIRST_DEFAULTS.items():
        if (part := _at(everything, above)) is not None:
            _set(spec, (*above, key), part[key], first)
    return digest([spec, delivery])


def _at(value: Any, path: Sequence[str]) -> Any:
    """Returns the value at the path; None if an optional one above it isn't set."""
    return functools.reduce(lambda part, key: None if part is None else part.get(key), path, value)


def _set(spec: dict[str, Any], path: Sequence[str], value: Any, first: Any) -> None:
    """Puts the value at the path into `spec`, or removes it with the maps that become empty if it is `first`."""
    key, *rest = path
    if rest:
        below = spec.setdefault(key, {})
        _set(below, rest, value, first)
        if not below:
            del spec[key]
    elif value == first:
        spec.pop(key, None)
    else:
        spec[key] = value


def digest(value: Any) -> str:
    """Returns a short hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def content(template: dict[str, Any]) -> str:
    """Returns a hash of `template` without what contains a hash."""
    return digest(with_hash(template, ""))


def with_hash(template: dict[str, Any], text: str) -> dict[str, Any]:
    """Returns `template` with `text` where it contains its hash: in an annotation, and as the key of its models."""
    metadata = template["metadata"]
    annotations = {**metadata["annotations"], names.ANNOTATION_TEMPLATE: text}
    return {
        **template,
        "metadata": {**metadata, "annotations": annotations},
        "spec": load_models.with_key(template["spec"], text),
    }


def with_annotation(template: dict[str, Any], name: str, value: str) -> dict[str, Any]:
    """Returns `template` with this annotation, and with the hash that it then has."""
    metadata = template["metadata"]
    changed = {**template, "metadata": {**metadata, "annotations": {**metadata["annotations"], name: value}}}
    return with_hash(changed, content(changed))


def pack(template: dict[str, Any]) -> str:
    """Returns `template` as the value of an annotation, or "" if it is too large."""
    text = base64.b64encode(zlib.compress(json.dumps(template, sort_keys=True).encode(), 9)).decode()
    return text if len(text) <= _MAX_PACKED else ""


def seal(template: dict[str, Any]) -> str:
    """Returns the value of LABEL_KEPT for `template`."""
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:40]


def unpack(text: str) -> dict[str, Any] | None:
    """Returns the template in `text`, or None if `text` isn't the output of `pack`."""
    try:
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(base64.b64decode(text, validate=True), _MAX_UNPACKED)
        template = json.loads(data) if unpacking.eof else None
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return None
    return template if isinstance(template, dict) else None
