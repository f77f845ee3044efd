"""Events of a TritonModel, as `kubectl describe` shows them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from triton_operator.api import names
from triton_operator.api.kinds import Kind
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError
from triton_operator.decisions.internal_error import INTERNAL_ERROR
from triton_operator.fairness import TokenBuckets

_log = logging.getLogger(__name__)
_EVENTS = Kind("events.k8s.io", "v1", "Event", "events")
_NOTE_BYTES = 1024
BURST, REFILL_SECONDS = 25, 300.0
"""Rate limit of the Events about one TritonModel: the same as in client-go's EventCorrelator for one object."""
_HOURLY = frozenset({INTERNAL_ERROR})
"""Reasons that come and go with each attempt. One TritonModel gets an Event of each at most once an hour."""


class Recorder:
    """Posts Events. Safe to use from several threads.

    Posts at most BURST Events about one TritonModel, and then one every REFILL_SECONDS, even if it is deleted and
    created again. Drops the others, because the status and the log contain the same information.

    - `clock`: the time of an Event.
    - `elapsed`: a monotonic clock, in seconds.
    """

    def __init__(
        self, api: KubernetesApi, clock: Callable[[], datetime], elapsed: Callable[[], float] = time.monotonic
    ) -> None:
        self._api, self._clock, self._elapsed = api, clock, elapsed
        self._lock = threading.Lock()
        self._buckets = TokenBuckets[str](BURST, REFILL_SECONDS)
        self._hourly = TokenBuckets[tuple[str, str]](1, 3600.0)

    def post(self, raw: dict[str, Any], kind: str, reason: str, message: str) -> None:
        """Posts an Event about the TritonModel `raw`; `kind` is Normal or Warning. Logs a failure and doesn't retry."""
        metadata = raw["metadata"]
        if not self._spend(f"{metadata['namespace']}/{metadata['name']}", reason):
            return
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}-", "namespace": metadata["namespace"]},
            "eventTime": self._clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
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
            self._api.create(_EVENTS, metadata["namespace"], body)
        except ApiError as error:
            _log.warning(
                "could not post the Event %s of %s/%s: %s",
                reason, metadata["namespace"], metadata["name"], error.message,
            )  # fmt: skip

    def _spend(self, key: str, reason: str) -> bool:
        """Takes a token of this TritonModel; returns False if there was none."""
        with self._lock:
            now = self._elapsed()
            if reason in _HOURLY and self._hourly.take((key, reason), now):
                return False
            return not self._buckets.take(key, now)
