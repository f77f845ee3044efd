"""One reconcile of one TritonModel: look, decide, do, report."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from triton_operator.api import kinds, secrets
from triton_operator.api.kinds import is_deleting
from triton_operator.api.status import timestamp
from triton_operator.api.types import TritonModel
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.errors import ApiError
from triton_operator.cluster.store import Store
from triton_operator.decisions import groups
from triton_operator.decisions.decide import decide
from triton_operator.decisions.internal_error import INTERNAL_ERROR, internal_error
from triton_operator.decisions.memory import Memory
from triton_operator.decisions.outcome import Outcome
from triton_operator.decisions.snapshot import Cluster
from triton_operator.pods import Pod, Problem
from triton_operator.pods.group import deployment_of
from triton_operator.probe import Prober
from triton_operator.render import Facts
from triton_operator.render.kept_template import spec_hash
from triton_operator.status.untouched import held, unread

from .execute import Executor
from .lacking import Lacking
from .leftover_pods import LeftoverPodCollector
from .leftovers import WAITING_FOR_DELETION, LeftoverCollector
from .pace import SPEC_CHANGES_TOO_OFTEN, Pace
from .read_snapshot import SnapshotReader
from .report import Reporter, current_status
from .unread import SPEC_INVALID, UNTOUCHED, is_essential, observe, read, too_large, unreadable
from .write_status import StatusWriter

Object = dict[str, Any]
Log = logging.LoggerAdapter[logging.Logger]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """The result of a reconcile.

    - `requeue`: reconcile again with backoff, because a write was refused.
    - `requeue_after`: seconds after which to reconcile again; None if the watches report every change.
    - `written`: versions of the objects that this reconcile wrote. Their events need no reconcile.
    - `outside_cause`: a write was refused for a cause that may end at any moment, see `Outcome`.
    - `failed`: there was an exception that nothing expects: a fault of the operator.
    """

    requeue: bool = False
    requeue_after: float | None = None
    written: frozenset[str] = frozenset()
    outside_cause: bool = False
    failed: bool = False


class Reconciler:
    """Reconciles TritonModels. Different keys may be reconciled in different threads, each key in one at a time.

    - `defaults`: the facts for a TritonModel that isn't deployed yet.
    - `cluster`: returns what the operator knows of the cluster.
    - `on_threshold(kind, result)`: called for every threshold that was accepted or refused.
    - `progress_seconds`: minimum interval between status updates that only report a step; 0 for none.
    - `on_repair(reason)`: called for every restart of a server because of spec.repair.
    - `on_scale_up`: called after each scale-up by an engine's decision. `elapsed`: a monotonic clock, in seconds.
    - `collect_seconds`: grace period for Kubernetes' garbage collector after a TritonModel was deleted.
    - `group_policies`: return the groups of servers beside the one that every TritonModel has.
    """

    def __init__(
        self,
        api: KubernetesApi,
        store: Store,
        prober: Prober,
        defaults: Facts,
        cluster: Callable[[], Cluster] = Cluster,
        on_threshold: Callable[[str, str], None] = lambda *_: None,
        progress_seconds: float = 5.0,
        collect_seconds: float = 300.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_scale_up: Callable[[], None] = lambda: None,
        elapsed: Callable[[], float] = time.monotonic,
        on_repair: Callable[[str], None] = lambda _: None,
        group_policies: Sequence[groups.Policy] = groups.POLICIES,
    ) -> None:
        self._store, self._clock, self._elapsed, self._cluster = store, clock, elapsed, cluster
        self._lacking = Lacking()
        self._reader = SnapshotReader(store, prober, defaults, clock, group_policies)
        self._leftovers = LeftoverCollector(api, store, clock, timedelta(seconds=collect_seconds))
        self._leftover_pods = LeftoverPodCollector(api, store, clock)
        self._executor = Executor(
            api, store, prober, self._leftovers, self._leftover_pods, on_scale_up, clock, self._lacking
        )
        self._statuses = StatusWriter(api, store, on_threshold, on_repair, clock)
        self._pace = Pace(elapsed)
        self._reporter = Reporter(self._statuses, prober, self._pace, timedelta(seconds=progress_seconds))
        self._memories: dict[str, Memory] = {}

    def reconcile(self, key: str) -> Result:
        """Reconciles the TritonModel `key` (namespace/name).

        A refused write ends no reconcile: the others are made, and the status is written with the reason. So it is
        with an exception that nothing expects. Raises ApiError if the API server doesn't answer, or refuses the status.
        """
        raw = self._store.model(key)
        if raw is None or is_deleting(raw):
            return self._forget(key, exists=raw is not None)
        log = logging.LoggerAdapter(_log, {"key": key, "generation": raw["metadata"].get("generation", 0)})
        try:
            return self._reconcile(key, raw, log)
        except ApiError:
            raise
        except Exception as error:
            log.exception("the operator failed to reconcile")
            problem = internal_error("to reconcile this TritonModel", error, UNTOUCHED.capitalize())
            return replace(self._report_unread(key, raw, problem, {}, log), failed=True)

    def _reconcile(self, key: str, raw: Object, log: Log) -> Result:
        cluster = self._known_cluster()
        unreadable_kinds = unreadable(cluster.refused_kinds)
        parsed = self._parse(key, raw, unreadable_kinds)
        if isinstance(parsed, Problem):
            return self._report_unread(key, raw, parsed, unreadable_kinds, log)
        model, refused_if_new = parsed
        if seconds := self._spend(model):
            self._report_held(key, raw, SPEC_CHANGES_TOO_OFTEN, log)
            return Result(requeue_after=seconds)

        before = current_status(raw)
        snapshot = self._reader.read(model, raw, before, cluster, unreadable_kinds)
        snapshot = replace(snapshot, refused_if_new=refused_if_new)
        decision = decide(snapshot, self._memory(key), self._elapsed())
        outcome = Outcome(secrets.values(model), snapshot.facts.cluster.kubernetes)
        try:
            self._executor.execute(snapshot, decision.steps, decision.memory, outcome, log)
        finally:
            self._memories[key] = outcome.remember(decision.memory, snapshot.time)
        if outcome.grace:
            self._report_held(key, raw, WAITING_FOR_DELETION, log)
            return Result(requeue_after=outcome.grace, written=frozenset(outcome.states))
        after, now = self._reader.after_writes(snapshot), self._clock()
        self._memories[key] = self._reporter.report_repairs(after, self._memory(key))
        self._memories[key] = self._reporter.report(after, decision, outcome, self._memory(key), now, log)
        return Result(
            requeue=bool(outcome.refused),
            requeue_after=outcome.requeue_after,
            written=frozenset(outcome.states),
            outside_cause=outcome.outside_cause,
            failed=outcome.failed,
        )

    def _memory(self, key: str) -> Memory:
        return self._memories.get(key) or Memory()

    def _known_cluster(self) -> Cluster:
        cluster = self._cluster()
        return replace(cluster, capabilities=replace(cluster.capabilities, lacks=self._lacking.fields))

    def try_newer_fields(self) -> None:
        """Makes the next writes contain the fields again that the cluster's CRDs didn't know."""
        self._lacking.forget()

    def _forget(self, key: str, *, exists: bool) -> Result:
        """Forgets a deleted TritonModel, and deletes what is left of it when it is gone.

        Kubernetes deletes the children by their owner references.
        """
        self._memories.pop(key, None)
        self._reader.forget(key)
        if exists:
            return Result()
        wait = self._leftovers.clean_up(key)
        if not wait:
            self._leftover_pods.clean_up(key)
        return Result(requeue_after=wait or None)

    def _parse(
        self, key: str, raw: Object, unreadable_kinds: Mapping[str, Problem]
    ) -> tuple[TritonModel, str] | Problem:
        """Returns what `unread.read` does, or why nothing of the TritonModel may be changed."""
        uid = raw["metadata"]["uid"]
        if large := self._store.large(key, uid):
            return too_large(large)
        parsed = read(raw, deployment_of(self._store.children(key, uid), raw["metadata"]["name"]))
        if isinstance(parsed, Problem):
            return parsed
        blocking = (problem for kind, problem in unreadable_kinds.items() if is_essential(kind, parsed[0]))
        return next(blocking, parsed)

    def _report_unread(
        self, key: str, raw: Object, problem: Problem, unreadable_kinds: Mapping[str, Problem], log: Log
    ) -> Result:
        """Writes into the status why the spec can't be read, and whether servers answer. The children stay the same."""
        pod, uid, metadata = kinds.POD.kind, raw["metadata"]["uid"], raw["metadata"]
        pods = () if pod in unreadable_kinds else self._store.of_kind(key, pod)
        unseen = pod in unreadable_kinds or any(large.kind == pod for large in self._store.large(key, uid))
        servers = observe(self._store.children(key, uid), map(Pod, pods), metadata["name"])
        now, before = self._clock(), current_status(raw)
        status = unread(before, problem, servers, timestamp(now), metadata.get("generation", 0), unseen=unseen)
        self._memories[key], wait = self._reporter.report_untouched(key, raw, status, self._memory(key), now, log)
        return Result(requeue=problem.reason in (SPEC_INVALID, INTERNAL_ERROR), requeue_after=wait or None)

    def _report_held(self, key: str, raw: Object, step: Problem, log: Log) -> None:
        """Writes into the status that the spec waits. If that itself has to wait, the next reconcile does it."""
        now = self._clock()
        status = held(current_status(raw), step, timestamp(now))
        self._memories[key], _ = self._reporter.report_untouched(key, raw, status, self._memory(key), now, log)

    def _spend(self, model: TritonModel) -> float:
        """Returns 0, or the seconds until the next change of the servers' spec may be made."""
        key, generation, memory = model.key, model.metadata.generation, self._memory(model.key)
        if generation == memory.generation:
            return 0
        pods_spec = spec_hash(model, "")
        if pods_spec != memory.pods_spec and (seconds := self._pace.spend_spec(key)):
            return seconds
        self._memories[key] = replace(memory, generation=generation, pods_spec=pods_spec)
        return 0
