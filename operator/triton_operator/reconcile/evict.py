"""Evicts servers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from triton_operator.api import kinds
from triton_operator.api.status import HEALTH_REQUEST_FAILED, RepairStatus, timestamp
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError
from triton_operator.decisions.outcome import Eviction, Outcome, Refusal
from triton_operator.pods import Pod, Problem

_PAUSE = timedelta(minutes=1)
"""The pause after a refusal, which may last for days."""
Log = logging.LoggerAdapter[logging.Logger]


class Evictor:
    """Evicts servers by the eviction API, which keeps to PodDisruptionBudgets. Safe to use from several threads."""

    def __init__(self, api: KubernetesApi, clock: Callable[[], datetime]) -> None:
        self._api, self._clock = api, clock

    def evict(self, pod: Pod, refusal: Refusal | None, outcome: Outcome, log: Log) -> None:
        """Evicts the pod, but not within a minute after the last `refusal`.

        Raises ApiError if the API server doesn't answer.
        """
        # If the clock was set back, there is no pause.
        if refusal is not None and timedelta() < refusal[0] - self._clock() <= _PAUSE:
            self._refused(refusal, outcome)
            return
        outcome.eviction = Eviction()
        try:
            self._api.evict(pod.raw)
        except ApiError as error:
            if error.code in (404, 409):  # It is gone, or has changed: a watch reports it.
                return
            if error.unanswered and error.code != 429:  # 429 is that of a PodDisruptionBudget.
                raise
            message = f"the server {pod.name} has stopped answering, and can't be evicted: {error.message}"
            log.warning("%s", message)
            self._refused((self._clock() + _PAUSE, Problem("RepairRefused", message)), outcome)
            return
        since = pod.stopped_answering
        message = (
            f"it didn't answer the health request any more since {since:%H:%M:%S} UTC, so it was evicted, and a new "
            "server replaces it"
        )
        log.warning("evicted %s: %s", pod.name, message)
        time = timestamp(self._clock())
        outcome.eviction = Eviction(
            RepairStatus(reason=HEALTH_REQUEST_FAILED, server=pod.name, message=message, time=time)
        )

    def _refused(self, refusal: Refusal, outcome: Outcome) -> None:
        outcome.eviction = Eviction(refusal=refusal)
        until, problem = refusal
        outcome.refused.setdefault(kinds.POD.kind, problem)
        outcome.reconcile_after((until - self._clock()).total_seconds())
