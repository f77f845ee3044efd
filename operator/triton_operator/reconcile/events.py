"""Events of a TritonModel, as `kubectl describe` shows them."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from triton_operator.api import names
from triton_operator.api.kinds import Kind
from triton_operator.cluster.api import ApiError, KubernetesApi

_log = logging.getLogger(__name__)
_EVENTS = Kind("events.k8s.io", "v1", "Event", "events")
_NOTE_BYTES = 1024


def post(api: KubernetesApi, raw: dict[str, Any], kind: str, reason: str, message: str, now: datetime) -> None:
    """Posts an Event about the TritonModel `raw`; `kind` is Normal or Warning. One that can't be posted is logged,
    never retried: the status says the same."""
    metadata = raw["metadata"]
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata['name']}-", "namespace": metadata["namespace"]},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": f"{names.GROUP}/{names.FIELD_MANAGER}",
        "reportingInstance": names.FIELD_MANAGER,
        "action": "Reconcile",
        "type": kind,
        "reason": reason,
        "note": message.encode()[:_NOTE_BYTES].decode(errors="ignore"),
        "regarding": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            **{k: metadata[k] for k in ("name", "namespace", "uid", "resourceVersion")},
        },
    }
    try:
        api.create(_EVENTS, metadata["namespace"], body)
    except ApiError as error:
        _log.warning("an Event could not be posted: %s", error.message)
