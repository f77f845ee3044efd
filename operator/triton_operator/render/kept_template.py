"""Keeps the pod template of running servers until the spec changes.

Otherwise an upgrade of the operator could restart every server of the cluster at once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from typing import Any

from triton_operator.api.types import TritonModel

NOT_IN_PODS = frozenset({"replicas", "autoscaling", "monitoring", "service", "network_policy", "disruption"})
"""Fields of the spec that the pod template doesn't depend on."""
_MAX_PACKED = 64 << 10
"""Kubernetes limits all annotations of an object together to 256 KiB."""
_MAX_UNPACKED = 1 << 20


def spec_hash(model: TritonModel, delivery: str) -> str:
    """Returns a hash of the spec fields that concern pods.

    It excludes fields with their default value, so that it stays the same when a later version adds fields.
    """
    spec = model.spec.model_dump(mode="json", by_alias=True, exclude=set(NOT_IN_PODS), exclude_defaults=True)
    return digest([spec, delivery])


def digest(value: Any) -> str:
    """Returns a short hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def pack(template: dict[str, Any]) -> str:
    """Returns `template` as the value of an annotation, or "" if it is too large."""
    text = base64.b64encode(zlib.compress(json.dumps(template, sort_keys=True).encode(), 9)).decode()
    return text if len(text) <= _MAX_PACKED else ""


def unpack(text: str) -> dict[str, Any] | None:
    """Returns the template in `text`, or None if `text` isn't the output of `pack`."""
    try:
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(base64.b64decode(text, validate=True), _MAX_UNPACKED)
        template = json.loads(data) if unpacking.eof else None
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return None
    return template if isinstance(template, dict) else None
