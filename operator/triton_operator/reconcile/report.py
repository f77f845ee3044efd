"""Reports a reconcile: assembles what was seen, decided and done, and writes the status."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from triton_operator.api.status import CONDITIONS, PROGRESSING, THRESHOLD_LIVE, TritonModelStatus, status_of, timestamp
from triton_operator.cluster.objects import state
from triton_operator.decisions.decide import Decision
from triton_operator.decisions.memory import Memory
from triton_operator.decisions.outcome import Outcome
from triton_operator.decisions.snapshot import Object, Snapshot
from triton_operator.probe import Prober
from triton_operator.status.assess import assess
from triton_operator.status.conditions import is_urgent
from triton_operator.status.threshold_live import outdated

from .pace import Pace
from .repairs import unreported
from .write_status import StatusWriter

Log = logging.LoggerAdapter[logging.Logger]
_ANSWER = timedelta(seconds=1)
"""How long to delay a status update for the answer of a server that has just started or changed its readiness."""
_FIRST_STATUS = timedelta(seconds=3)
"""How long to delay the first status update until the Deployment's pods exist."""


class Reporter:
    """Reports reconciles. Safe to use from several threads, with one thread at a time for each key.

    `progress`: minimum interval between status updates that only report a step; 0 for none.
    """

    def __init__(self, statuses: StatusWriter, prober: Prober, pace: Pace, progress: timedelta) -> None:
        self._statuses, self._prober, self._pace, self._progress = statuses, prober, pace, progress

    def report(
        self, snapshot: Snapshot, decision: Decision, outcome: Outcome, memory: Memory, clock: datetime, log: Log
    ) -> Memory:
        """Writes the status if it has changed; returns what to remember. `snapshot`: what is there after the writes.

        Raises ApiError if the API server refuses it.
        """
        now = timestamp(clock, "milliseconds")
        status = assess(snapshot, decision, outcome, now)
        if any(c.type == PROGRESSING and c.reason == "Complete" for c in status.conditions):
            memory = replace(memory, rollout="")
        self._set_waiting(snapshot, decision, status, now)
        if status == snapshot.before or (status, snapshot.before) == memory.merged:
            return memory
        memory, wait = self._wait(snapshot, memory, status, clock)
        if wait > timedelta():
            outcome.reconcile_after(wait.total_seconds())
            return memory
        answer = self._statuses.write(snapshot.raw, snapshot.before, status, log)
        memory = replace(memory, due=clock + self._progress, evicted=None)
        if answer is None:
            return memory
        if (result := current_status(answer)) != status:
            memory = replace(memory, merged=(status, result))
        outcome.states.add(state(answer))
        if status.canary != snapshot.before.canary:
            # The number of its servers follows from the status.
            outcome.reconcile_after(0)
        if _reconcile_triggers(answer) != _reconcile_triggers(snapshot.raw):
            # The spec changed meanwhile. Our own answer contains that, so its event will be ignored.
            outcome.reconcile_after(0)
        return memory

    def report_repairs(self, snapshot: Snapshot, memory: Memory) -> Memory:
        """Reports the repairs that nobody has reported; returns what to remember. `snapshot`: as for `report`."""
        repairs, reported = unreported(
            snapshot.pods, snapshot.main.deployment, snapshot.before.last_repair, memory, snapshot.time
        )
        for repair in repairs:
            self._statuses.report_repair(snapshot.raw, repair)
        return replace(memory, reported_repairs=reported)

    def report_untouched(
        self, key: str, raw: Object, status: TritonModelStatus, memory: Memory, now: datetime, log: Log
    ) -> tuple[Memory, float]:
        """Writes the status of a TritonModel of which nothing is changed now, if it differs from the last one.

        Returns what to remember, and 0 or the seconds until a step that isn't urgent may be written. Raises ApiError if
        the API server refuses it.
        """
        before = current_status(raw)
        if status == before:
            return memory, 0
        wait = (memory.due or now) - now
        if timedelta() < wait <= self._progress and not (is_urgent(before, status) and self._pace.spend_urgent(key)):
            return memory, wait.total_seconds()
        for condition in status.conditions:
            if condition.type == PROGRESSING and condition not in before.conditions:
                level = logging.INFO if condition.status == "True" else logging.WARNING
                log.log(level, "%s: %s", condition.reason, condition.message)
        self._statuses.write(raw, before, status, log)
        return replace(memory, due=now + self._progress), 0

    def _set_waiting(self, snapshot: Snapshot, decision: Decision, status: TritonModelStatus, now: str) -> None:
        """Tells the prober whether this TritonModel waits for Prometheus to use a new threshold."""
        live = next((c for c in status.conditions if c.type == THRESHOLD_LIVE), None)
        has_thresholds = decision.facts.entrypoint and not snapshot.requested.invalid
        waits = bool(has_thresholds) and live is not None and live.status != "True"
        answer = snapshot.answer
        stale = waits and answer is not None and bool(answer.at) and outdated(answer, status.thresholds, now)
        self._prober.prometheuses.set_waiting(snapshot.model.key, waits=waits, outdated=stale)

    def _wait(
        self, snapshot: Snapshot, memory: Memory, status: TritonModelStatus, now: datetime
    ) -> tuple[Memory, timedelta]:
        """Returns what to remember, and how long to delay this status update.

        A step that isn't urgent waits for the next step. Every update waits for the answer of a server that has just
        started or changed its readiness.
        """
        pending = (memory.pending or now) if snapshot.servers.pending else None
        memory = replace(memory, pending=pending)
        if pending is not None:
            wait = pending + min(_ANSWER, self._progress) - now
            if timedelta() < wait <= _ANSWER:
                return memory, wait
        first = not snapshot.before.observed_generation
        due = memory.due or (now + min(_FIRST_STATUS, self._progress) if first else now)
        wait = due - now
        # If the clock was set back, there is no delay.
        all_exist = all(len(group.pods) >= group.desired for group in snapshot.groups)
        held = timedelta() < wait <= self._progress and not (first and all_exist)
        urgent = held and is_urgent(snapshot.before, status) and self._pace.spend_urgent(snapshot.model.key)
        return replace(memory, due=due), wait if held and not urgent else timedelta()


def current_status(raw: Object) -> TritonModelStatus:
    """Returns the current status without conditions of other field managers."""
    status = status_of(raw)
    return status.model_copy(update={"conditions": [c for c in status.conditions if c.type in CONDITIONS]})


def _reconcile_triggers(raw: Object) -> list[Any]:
    """Returns the parts of a TritonModel whose changes cause a reconcile."""
    return [raw["metadata"].get(k) for k in ("generation", "annotations", "deletionTimestamp")]
