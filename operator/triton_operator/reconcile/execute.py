"""Does the steps of a reconcile. Everything that a reconcile writes is written here, except the status."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import assert_never

from triton_operator.api import kinds
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.store import Store
from triton_operator.decisions.memory import Memory
from triton_operator.decisions.outcome import Outcome
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.decisions.steps import (
    ChangeModels,
    DeleteLeftoverPods,
    DeleteLeftovers,
    Evict,
    ReadLost,
    ReconcileAfter,
    ScaleUp,
    Step,
    WakeUp,
    WriteChildren,
)
from triton_operator.probe import Prober

from .evict import Evictor
from .lacking import Lacking
from .leftover_pods import LeftoverPodCollector
from .leftovers import LeftoverCollector
from .refusals import attempt
from .scale import Scaler
from .write_children import ChildWriter

Log = logging.LoggerAdapter[logging.Logger]


class Executor:
    """Does steps. Safe to use from several threads, with one thread at a time for each key."""

    def __init__(
        self,
        api: KubernetesApi,
        store: Store,
        prober: Prober,
        leftovers: LeftoverCollector,
        leftover_pods: LeftoverPodCollector,
        on_scale_up: Callable[[], None],
        clock: Callable[[], datetime],
        lacking: Lacking,
    ) -> None:
        self._store, self._prober, self._children = store, prober, ChildWriter(api, store, lacking)
        self._scaler, self._leftovers, self._leftover_pods = Scaler(api, on_scale_up), leftovers, leftover_pods
        self._evictor = Evictor(api, clock)

    def execute(self, snapshot: Snapshot, steps: Iterable[Step], memory: Memory, outcome: Outcome, log: Log) -> None:
        """Does the steps in their order. One that is refused, or fails, stops only those that depend on it.

        `outcome` gets what was done, also before an ApiError, which is raised if the API server doesn't answer.
        """
        for step in steps:
            try:
                self._do(step, snapshot, memory, outcome, log)
            except ApiError:
                raise
            except Exception as error:
                log.exception("the operator failed %s", step.action)
                outcome.fail(step.action, error)

    def _do(self, step: Step, snapshot: Snapshot, memory: Memory, outcome: Outcome, log: Log) -> None:
        model = snapshot.model
        match step:
            case WakeUp():
                self._scaler.wake_up(step, outcome, log)
            case ReadLost():
                self._children.read_lost(model, step.objects, outcome)
            case DeleteLeftovers():
                self._leftovers.delete_leftovers(model.key, model.metadata.uid, outcome)
            case WriteChildren():
                self._write_children(step, snapshot, outcome, log)
            case ChangeModels():
                self._change_models(step, snapshot, outcome, log)
            case ScaleUp():
                self._scaler.scale_up(step, outcome, log)
            case Evict():
                self._evictor.evict(step.pod, memory.eviction_refusal, outcome, log)
            case ReconcileAfter():
                outcome.reconcile_after(step.seconds)
            case DeleteLeftoverPods():
                self._delete_leftover_pods(snapshot, memory, outcome)
            case _:
                assert_never(step)

    def _write_children(self, step: WriteChildren, snapshot: Snapshot, outcome: Outcome, log: Log) -> None:
        try:
            self._children.write(snapshot.model, step.plan, step.held, outcome, log)
        finally:
            outcome.set_back = tuple(place for place in step.set_back if place[0] in outcome.applied)
        self._children.name_writers(step.held, outcome, log)

    def _change_models(self, step: ChangeModels, snapshot: Snapshot, outcome: Outcome, log: Log) -> None:
        # The next leader would not know which models the server may have.
        if kinds.CONFIG_MAP.kind in outcome.refused:
            return
        server, change = step.server, step.change
        if server.uid not in snapshot.changes:
            log.info("models of %s: load %s, then unload %s", server.pod, list(change.load), list(change.unload))
        self._prober.changes.start(snapshot.model.key, server, change, step.models)

    def _delete_leftover_pods(self, snapshot: Snapshot, memory: Memory, outcome: Outcome) -> None:
        model = snapshot.model
        children = self._store.children(model.key, model.metadata.uid, snapshot.children)
        deployments = [child for child in children if child["kind"] == kinds.DEPLOYMENT.kind]
        uids = frozenset(deployment["metadata"]["uid"] for deployment in deployments)
        if uids <= memory.cleaned_up:
            return

        def delete() -> None:
            wait = self._leftover_pods.delete_leftovers(model.key, deployments)
            if wait is None:
                outcome.cleaned_up = uids
            outcome.reconcile_after(wait)

        attempt(outcome, kinds.POD.kind, "to delete pods of earlier Deployments", delete, None)
