"""One pass over one TritonModel, from top to bottom."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from triton_operator.api import kinds, thresholds
from triton_operator.api.kinds import Kind, ending
from triton_operator.api.status import MONITORING_AVAILABLE, THRESHOLD_LIVE, TritonModelStatus
from triton_operator.api.thresholds import Slot
from triton_operator.api.types import TritonModel
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.monitoring import Monitoring
from triton_operator.cluster.store import Store, state
from triton_operator.plan import plan
from triton_operator.probe import Prober
from triton_operator.render import Choices, children, choose, endpoint, render
from triton_operator.status.assess import all_made, assess, entry, unreadable
from triton_operator.status.conditions import pressing
from triton_operator.status.load import outdated
from triton_operator.status.observation import Observation

from .collect import Collector
from .collect_servers import ServerCollector
from .memory import Memory
from .observe import Observer, one_of
from .write_children import Children
from .write_status import Statuses

Object = dict[str, Any]
_log = logging.getLogger(__name__)
_ANSWER = timedelta(seconds=1)
"""How long a status waits for the answer of a server that has just started or changed its readiness."""
_FIRST_STATUS = timedelta(seconds=3)
"""The first status tells of the pods, which the controllers make within moments: how long it waits for them."""


@dataclass(frozen=True)
class Outcome:
    """`again`: whether something is on its way that no event will tell of. `after`: look again after so many
    seconds even so; None where events tell all. `written`: states of objects that the pass itself brought about.
    `forbidden`: whether the operator lacked the right to write something."""

    again: bool = False
    after: float | None = None
    written: frozenset[str] = frozenset()
    forbidden: bool = False


class Reconciler:
    """Makes TritonModels true, one at a time per key; different keys may run in different threads.

    `fresh` gives the choices for what isn't deployed yet. `served` says which of the optional kinds the cluster has.
    `on_threshold(kind, result)` is told of every threshold that was accepted or refused. `progress_seconds`: the steps
    on the way to Ready are written at most so often; 0 for each at once. `collect_seconds`: for so long Kubernetes'
    collector is left alone with what a deleted TritonModel leaves.
    """

    def __init__(
        self,
        api: KubernetesApi,
        store: Store,
        prober: Prober,
        monitoring: Monitoring,
        fresh: Choices,
        served: Callable[[Kind], bool] = lambda _: True,
        on_threshold: Callable[[str, str], None] = lambda *_: None,
        progress_seconds: float = 5.0,
        collect_seconds: float = 300.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store, self._fresh, self._served, self._clock = store, fresh, served, clock
        self._children = Children(api, store)
        self._prober, self._observer = prober, Observer(store, prober, monitoring)
        self._collector = Collector(api, store, clock, timedelta(seconds=collect_seconds))
        self._server_collector = ServerCollector(api, store, clock)
        self._statuses = Statuses(api, store, on_threshold, clock)
        self._progress = timedelta(seconds=progress_seconds)
        self._memories: dict[str, Memory] = {}

    def reconcile(self, key: str) -> Outcome:
        """One pass over the TritonModel `key` (namespace/name). Raises ApiError for what a retry may cure."""
        raw = self._store.model(key)
        if raw is None or ending(raw):
            # Owner references take the children away, also while no operator runs.
            self._memories.pop(key, None)
            self._observer.forget(key)
            return Outcome(after=None if raw else self._clear_up(key))
        log = logging.LoggerAdapter(_log, {"key": key, "generation": raw["metadata"].get("generation")})
        before = _status(raw)
        try:
            model = TritonModel.model_validate(raw)
        except ValidationError as error:
            self._write_unreadable(raw, before, error, log)
            return Outcome(again=True)
        memory = self._memories.setdefault(key, Memory())

        asked = thresholds.of(raw)
        limits = thresholds.effective_of(raw, asked)
        live = self._store.children(key, model.metadata.uid)
        deployment = one_of(live, kinds.DEPLOYMENT)
        choices = choose(model, deployment, self._on_offer(model, before, limits))
        desired = render(model, choices)
        if self._children.find_lost(model, desired):
            live = self._store.children(key, model.metadata.uid)
        if not choices.entrypoint and model.spec.monitoring.enabled:
            # Alerts aren't taken away because another entry model isn't known yet, or doesn't exist.
            live = [obj for obj in live if not children.of(obj).needs_entrypoint]
        way = self._collector.clear_the_way(key, model.metadata.uid)
        steps = plan(desired, live, memory.applied, memory.alike)
        written = self._children.write(model, steps, memory.applied, way.blocked, log)
        if way.wait:
            return Outcome(after=way.wait, written=frozenset(written.states))

        seen = self._observer.observe(model, choices, desired, asked, written.refused)
        clock = self._clock()
        now = clock.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        status = assess(model, seen, endpoint(model), before, now)
        self._settle(key, status, seen)
        after = None
        if status != before:
            wait = self._wait(memory, before, status, seen, clock)
            if wait > timedelta():
                after = wait.total_seconds()
            else:
                answer = self._statuses.write(raw, before, status, log)
                memory.due = clock + self._progress
                if answer is not None:
                    written.states.add(state(answer))
                    if _wanted(answer) != _wanted(raw):
                        # The answer has it, so that no event tells of it any more.
                        after = 0.0
        if deployment is not None:
            after = _sooner(after, self._server_collector.clear_the_way(key, deployment, memory))
        return Outcome(bool(written.refused), after, frozenset(written.states), written.forbidden)

    def _settle(self, key: str, status: TritonModelStatus, seen: Observation) -> None:
        """Tells the prober whether this TritonModel waits for another answer of Prometheus."""
        live = next((c for c in status.conditions if c.type == THRESHOLD_LIVE), None)
        waits = live is not None and live.status != "True"
        stale = seen.answer is not None and bool(seen.answer.at) and outdated(seen.answer, status.thresholds)
        self._prober.prometheuses.settle(key, waits=waits, outdated=stale)

    def _clear_up(self, key: str) -> float | None:
        """Of a TritonModel that is gone; in how many seconds to look again, None where nothing can be left."""
        wait = self._collector.clear_up(key)
        if not wait:
            self._server_collector.clear_up(key)
        return wait or None

    def _on_offer(self, model: TritonModel, before: TritonModelStatus, limits: Mapping[Slot, float]) -> Choices:
        """What this cluster offers today, and what is known of this model."""
        entrypoint, what = entry(model, self._store.of_kind(model.key, kinds.POD.kind), before)
        return replace(
            self._fresh,
            # The rules of an ensemble are others: until it is known which it is, there are none.
            entrypoint=entrypoint if what else "",
            ensemble=what == "Ensemble",
            thresholds=limits,
            monitoring=all(self._served(c.kind) for c in children.CHILDREN if c.condition == MONITORING_AVAILABLE),
        )

    def _wait(
        self, memory: Memory, before: TritonModelStatus, status: TritonModelStatus, seen: Observation, now: datetime
    ) -> timedelta:
        """How long a status that nobody waits for is held back, so that the next step can be told along with it; and
        any status, for the answer of a server that is just being asked."""
        if not seen.pending:
            memory.pending = None
        else:
            memory.pending = memory.pending or now
            wait = memory.pending + min(_ANSWER, self._progress) - now
            if timedelta() < wait <= _ANSWER:
                return wait
        first = not before.observed_generation
        if memory.due is None:
            memory.due = now + min(_FIRST_STATUS, self._progress) if first else now
        wait = memory.due - now
        # A clock that was set back holds back nothing.
        held = timedelta() < wait <= self._progress and not (first and all_made(seen))
        return wait if held and not pressing(before, status) else timedelta()

    def _write_unreadable(
        self,
        raw: Object,
        before: TritonModelStatus,
        error: ValidationError,
        log: logging.LoggerAdapter[logging.Logger],
    ) -> None:
        """The schema in the cluster and the types here differ: what can't be read is told, and all else stays."""
        faults = [
            f"{'.'.join(map(str, fault['loc']))}: {fault['msg'].removeprefix('Value error, ')}"
            for fault in error.errors()
        ]
        log.error("the spec can't be read: %s", "; ".join(faults))
        now = self._clock().isoformat(timespec="seconds").replace("+00:00", "Z")
        status = unreadable(before, faults, now, raw["metadata"].get("generation", 0))
        if status != before:
            self._statuses.write(raw, before, status, log)


def _sooner(one: float | None, other: float | None) -> float | None:
    return min((seconds for seconds in (one, other) if seconds is not None), default=None)


def _wanted(raw: Object) -> list[Any]:
    """What a TritonModel asks for, as far as it is needed to tell one state from another."""
    return [raw["metadata"].get(k) for k in ("generation", "annotations", "deletionTimestamp")]


def _status(raw: Object) -> TritonModelStatus:
    """The status as it is; empty where others have written one that can't be read."""
    try:
        return TritonModelStatus.model_validate(raw.get("status", {}))
    except ValidationError:
        return TritonModelStatus()
