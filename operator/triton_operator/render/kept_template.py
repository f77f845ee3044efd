"""Keeps the pod template that servers were made with until their spec changes: an upgrade of the operator that renders
another one would restart every server of the cluster at once."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from typing import Any

from triton_operator.api.types import TritonModel

NOT_IN_PODS = frozenset({"replicas", "autoscaling", "monitoring", "network_policy", "disruption"})
"""Fields of the spec that the pod template doesn't depend on."""
_MAX_PACKED = 64 << 10
"""All annotations of an object together may have 256 KiB."""
_MAX_UNPACKED = 1 << 20


def spec_hash(model: TritonModel, delivery: str) -> str:
    """A fingerprint of what the user asks of the pods. Fields with their default value are left out, so that it stays
    the same when a later version has more fields."""
    spec = model.spec.model_dump(mode="json", by_alias=True, exclude=set(NOT_IN_PODS), exclude_defaults=True)
    return digest([spec, delivery])


def digest(value: Any) -> str:
    """A short fingerprint of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def pack(template: dict[str, Any]) -> str:
    """`template` as the value of an annotation; "" where it is too large to be kept."""
    text = base64.b64encode(zlib.compress(json.dumps(template, sort_keys=True).encode(), 9)).decode()
    return text if len(text) <= _MAX_PACKED else ""


def unpack(text: str) -> dict[str, Any] | None:
    """The template that `pack` made `text` from; None where somebody else wrote it."""
    try:
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(base64.b64decode(text, validate=True), _MAX_UNPACKED)
        template = json.loads(data) if unpacking.eof else None
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return None
    return template if isinstance(template, dict) else None
