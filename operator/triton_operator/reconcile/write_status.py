"""Writes the status of a TritonModel, and reports its changes: Events, log lines, and threshold metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from triton_operator.api import kinds, names, thresholds
from triton_operator.api.status import AutoscalingStatus, RepairStatus, TritonModelStatus
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.store import Store
from triton_operator.scaling import SCALED_UP
from triton_operator.status.conditions import transitions
from triton_operator.status.threshold_live import THRESHOLD_INVALID
from triton_operator.status.thresholds import changes

from .events import Recorder

Object = dict[str, Any]
_log = logging.getLogger(__name__)


class StatusWriter:
    """Writes the status of TritonModels. Safe to use from several threads, with one thread at a time for each key.

    `on_threshold(kind, result)` is called for every threshold that was accepted or refused, and `on_repair(reason)` for
    every repair of a server.
    """

    def __init__(
        self,
        api: KubernetesApi,
        store: Store,
        on_threshold: Callable[[str, str], None],
        on_repair: Callable[[str], None],
        clock: Callable[[], datetime],
    ) -> None:
        self._api, self._store, self._on_threshold, self._on_repair = api, store, on_threshold, on_repair
        self._events = Recorder(api, clock)

    def write(
        self,
        raw: Object,
        before: TritonModelStatus,
        status: TritonModelStatus,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> Object | None:
        """Writes `status`; returns the TritonModel as the API server has it now, None if it was deleted.

        Raises ApiError.
        """
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {k: raw["metadata"][k] for k in ("name", "namespace")},
            "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        try:
            answer = self._api.apply(kinds.TRITON_MODEL, body, raw["metadata"]["uid"], subresource="status")
        except ApiError as error:
            if error.code in (404, 409, 422) and not self._still_there(raw):
                return None
            raise
        self._store.put(answer)
        self._report_thresholds(raw, before, status)
        self._report_scaling(raw, before.autoscaling, status.autoscaling)
        for transition in transitions(before.conditions, status.conditions):
            log.info("%s: %s", transition.reason, transition.message)
            self._events.post(raw, transition.kind, transition.reason, transition.message)
        return answer

    def _report_thresholds(self, raw: Object, before: TritonModelStatus, status: TritonModelStatus) -> None:
        """Records changed and refused thresholds. The user who changed them is in the API server's audit log."""
        key = f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"
        for change in changes(before.thresholds, status.thresholds):
            values = {"threshold": str(change.threshold), "old": change.old, "new": change.new}
            _log.info("threshold changed: %s", change, extra={"key": key, **values})
            self._on_threshold(change.threshold.kind, "accepted")
            if before.observed_generation:  # not for the thresholds that it was created with
                self._events.post(raw, "Normal", "ThresholdChanged", str(change))
        reported = {c.message for c in before.conditions if c.reason == THRESHOLD_INVALID}
        if not reported & {c.message for c in status.conditions if c.reason == THRESHOLD_INVALID}:
            for invalid in thresholds.of(raw).invalid:
                _log.warning("threshold refused: %s", invalid.message, extra={"key": key, "threshold": invalid.source})
                self._on_threshold(invalid.threshold.kind if invalid.threshold else "unknown", "refused")

    def _report_scaling(self, raw: Object, before: AutoscalingStatus | None, now: AutoscalingStatus | None) -> None:
        """Posts an Event when the engine begins to add servers, and when its object decides alone again."""
        was_up = before is not None and before.reason == SCALED_UP
        if now is not None and was_up != (now.reason == SCALED_UP):
            self._events.post(raw, "Normal", now.reason, now.message)

    def report_repair(self, raw: Object, repair: RepairStatus) -> None:
        """Counts the repair of a server of the TritonModel `raw`, and posts its Event."""
        self._on_repair(repair.reason)
        self._events.post(raw, "Warning", repair.reason, f"{repair.server}: {repair.message}")

    def _still_there(self, raw: Object) -> bool:
        try:
            now = self._api.get(kinds.TRITON_MODEL, raw["metadata"]["namespace"], raw["metadata"]["name"])
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return bool(now["metadata"]["uid"] == raw["metadata"]["uid"])
