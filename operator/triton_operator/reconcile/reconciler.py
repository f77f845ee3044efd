"""Reconciles one TritonModel."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from triton_operator import image_changes
from triton_operator.api import kinds, names, thresholds
from triton_operator.api.kinds import Kind, is_deleting
from triton_operator.api.status import MONITORING_AVAILABLE, PROGRESSING, THRESHOLD_LIVE, TritonModelStatus
from triton_operator.api.thresholds import ThresholdKey
from triton_operator.api.types import TritonModel
from triton_operator.cluster.api import KubernetesApi
from triton_operator.cluster.monitoring import Monitoring
from triton_operator.cluster.store import Store, state
from triton_operator.plan import plan
from triton_operator.probe import Prober
from triton_operator.render import Choices, children, choose, endpoint, render, switched
from triton_operator.scaling import Decision
from triton_operator.status.assess import all_pods_exist, assess, entry, unread
from triton_operator.status.churn import seconds_left
from triton_operator.status.conditions import is_urgent
from triton_operator.status.load import outdated
from triton_operator.status.observation import Observation, Problem

from . import change_image, change_models
from .cache import ReconcileCache
from .direct import DirectEngine, scaling_status
from .keda import wake_up
from .leftover_pods import LeftoverPodCollector
from .leftovers import LeftoverCollector
from .observe import Observer, find_kind
from .pace import Pace
from .series import SeriesBudget
from .unread import invalid, too_large
from .write_children import ChildWriter, Written, is_orphan
from .write_status import StatusWriter

Object = dict[str, Any]
_log = logging.getLogger(__name__)
_ANSWER = timedelta(seconds=1)
"""How long to delay a status update for the answer of a server that has just started or changed its readiness."""
_FIRST_STATUS = timedelta(seconds=3)
"""How long to delay the first status update until the Deployment's pods exist."""


@dataclass(frozen=True)
class Result:
    """The result of a reconcile.

    - `requeue`: reconcile again with backoff, because a write was refused.
    - `requeue_after`: seconds after which to reconcile again; None if the watches report every change.
    - `written`: versions of the objects that this reconcile wrote. Their events need no reconcile.
    - `forbidden`: the API server refused a write with status 403.
    """

    requeue: bool = False
    requeue_after: float | None = None
    written: frozenset[str] = frozenset()
    forbidden: bool = False


class Reconciler:
    """Reconciles TritonModels. Different keys may be reconciled in different threads, each key in one at a time.

    - `defaults`: the choices for a TritonModel that isn't deployed yet.
    - `served`: whether the cluster has an optional kind.
    - `on_threshold(kind, result)`: called for every threshold that was accepted or refused.
    - `progress_seconds`: minimum interval between status updates that only report a step; 0 for none.
    - `on_scale_up`: called after each scale-up of the engine Direct. `elapsed`: a monotonic clock, in seconds.
    - `samples_per_namespace`: see `SeriesBudget`.
    - `collect_seconds`: grace period for Kubernetes' garbage collector after a TritonModel was deleted.
    """

    def __init__(
        self,
        api: KubernetesApi,
        store: Store,
        prober: Prober,
        monitoring: Monitoring,
        defaults: Choices,
        served: Callable[[Kind], bool] = lambda _: True,
        on_threshold: Callable[[str, str], None] = lambda *_: None,
        progress_seconds: float = 5.0,
        collect_seconds: float = 300.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_scale_up: Callable[[], None] = lambda: None,
        elapsed: Callable[[], float] = time.monotonic,
        samples_per_namespace: int = names.SAMPLES_PER_NAMESPACE,
    ) -> None:
        self._api, self._store, self._defaults, self._served, self._clock = api, store, defaults, served, clock
        self._children = ChildWriter(api, store)
        self._prober, self._observer = prober, Observer(store, prober, monitoring)
        self._collector = LeftoverCollector(api, store, clock, timedelta(seconds=collect_seconds))
        self._server_collector = LeftoverPodCollector(api, store, clock)
        self._changer = change_models.ModelChanger(api, store, prober)
        self._image_changer = change_image.ImageChanger(api, store, prober, lambda: clock().timestamp())
        self._direct = DirectEngine(api, prober, on_scale_up, elapsed)
        self._series = SeriesBudget(samples_per_namespace, clock)
        self._statuses = StatusWriter(api, store, on_threshold, clock)
        self._progress = timedelta(seconds=progress_seconds)
        self._caches: dict[str, ReconcileCache] = {}
        self._pace = Pace(elapsed)
        self._suspended: dict[str, str] = {}

    def reconcile(self, key: str) -> Result:
        """Reconciles the TritonModel `key` (namespace/name). Raises ApiError for failures that a retry may fix."""
        raw = self._store.model(key)
        if raw is None or is_deleting(raw):
            # Kubernetes deletes the children by their owner references.
            self._caches.pop(key, None)
            self._series.forget(key)
            self._observer.forget(key)
            self._image_changer.forget(key)
            return Result(requeue_after=None if raw else self._clean_up(key))
        generation = raw["metadata"].get("generation", 0)
        log = logging.LoggerAdapter(_log, {"key": key, "generation": generation})
        cache = self._caches.setdefault(key, ReconcileCache())
        if generation != cache.generation:
            if seconds := self._pace.spend_spec(key):
                log.info("waiting %.0f s, because the spec changes too often", seconds)
                return Result(requeue_after=seconds)
            cache.generation = generation
        before = self._with_suspension(key, _status(raw))
        if large := self._store.large(key, raw["metadata"]["uid"]):
            self._write_unread(raw, before, too_large(large), log)
            return Result()
        try:
            model = TritonModel.model_validate(raw)
        except ValidationError as error:
            self._write_unread(raw, before, invalid(error), log)
            return Result(requeue=True)

        requested = thresholds.of(raw)
        limits = thresholds.effective_of(raw, requested)
        live = self._store.children(key, model.metadata.uid)
        deployment = find_kind(live, kinds.DEPLOYMENT) or self._orphaned_deployment(model)
        pods = self._store.of_kind(key, kinds.POD.kind)
        accounts = {obj["metadata"]["name"] for obj in live if obj["kind"] == kinds.SERVICE_ACCOUNT.kind}
        capabilities = self._cluster_capabilities(model, pods, before, limits)
        choices = choose(model, deployment, capabilities, pods, accounts)
        change = self._changer.advance(model, choices, pods, log)
        # A server changes its models or its files, not both at the same time.
        image = image_changes.Decision() if change.left else self._image_changer.advance(model, choices, pods, log)
        if why := change_models.replace_servers(model, change) or change_image.replace_servers(model, image):
            log.warning("replacing the servers for %s", why)
            choices = choose(model, deployment, capabilities, pods, accounts, replace_servers=why)
        elif not change.left and not image.left:
            choices = switched(model, choices)
        cache.rollout = choices.rollout or cache.rollout
        autoscaler, scaled_object = find_kind(live, kinds.AUTOSCALER), find_kind(live, kinds.SCALED_OBJECT)
        choices = replace(choices, prometheus=self._observer.for_keda(model, choices, scaled_object))
        servers = self._observer.servers(model, choices)
        listed = self._series.choose(model, choices, before, servers.indexes, find_kind(live, kinds.POD_MONITOR))
        choices = replace(choices, series=listed.pairs)
        wake_up(self._api, model, deployment, scaled_object, log)
        decision = self._direct.decide(model, choices, deployment, autoscaler, pods, before, cache, servers.indexes)
        suspended = seconds_left(before, self._clock())
        floor = 0 if decision is None else decision.floor
        desired = render(model, replace(choices, suspended=bool(suspended), autoscaler_floor=floor))
        switching = change_models.switch(self._api, model, choices, desired, deployment)
        to_image = switching and change_image.is_switch(choices, before)
        if self._children.find_lost(model, desired):
            live = self._store.children(key, model.metadata.uid)
        if not choices.entrypoint and model.spec.monitoring.enabled:
            # Keep the alerts until the entrypoint is known.
            live = [obj for obj in live if not children.of(obj).needs_entrypoint]
        leftovers = self._collector.delete_leftovers(key, model.metadata.uid)
        steps = plan(desired, live, cache.applied, cache.unchanged)
        written = self._children.write(model, steps, cache.applied, leftovers.blocked, log)
        if leftovers.wait:
            return Result(requeue_after=leftovers.wait, written=frozenset(written.states))
        if decision is not None and deployment is not None:
            self._scale_up(deployment, decision, written, log)

        clock = self._clock()
        now = clock.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        scaling = scaling_status(decision, before.autoscaling, now)
        observed = replace(
            self._observer.observe(model, choices, desired, requested, written.refused, scaling, listed, servers),
            models_change=change_models.reported(model, change, switching=switching and not to_image),
            image_change=change_image.reported(model, choices, image, before, cache.rollout, switching=to_image),
            rollout=cache.rollout,
        )
        status = assess(model, observed, endpoint(model), before, now)
        if any(c.type == PROGRESSING and c.reason == "Complete" for c in status.conditions):
            cache.rollout = ""
        self._remember_suspension(key, status.scraping_suspended_until, now)
        self._set_waiting(key, status, observed)
        # Scraping begins again when the suspension ends.
        requeue_after = _earliest(suspended or None, listed.again)
        requeue_after = _earliest(requeue_after, change_models.POLL_SECONDS if switching else None)
        requeue_after = _earliest(requeue_after, image.wait)
        if status != before:
            wait = self._wait(key, cache, before, status, observed, clock)
            if wait > timedelta():
                requeue_after = _earliest(requeue_after, wait.total_seconds())
            else:
                answer = self._statuses.write(raw, before, status, log)
                cache.due = clock + self._progress
                if answer is not None:
                    written.states.add(state(answer))
                    if _reconcile_triggers(answer) != _reconcile_triggers(raw) or (
                        status.scraping_suspended_until and not suspended
                    ):
                        # The spec changed meanwhile. Our own answer contains it, so its event will be ignored. Or the
                        # scraping is suspended from now on.
                        requeue_after = 0.0
        if deployment is not None:
            requeue_after = _earliest(requeue_after, self._server_collector.delete_leftovers(key, deployment, cache))
        return Result(bool(written.refused), requeue_after, frozenset(written.states), written.forbidden)

    def _scale_up(
        self, deployment: Object, decision: Decision, written: Written, log: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        """Adds the servers of `decision`, unless the autoscaler's raised minimum was refused: it would remove them."""
        kind = kinds.AUTOSCALER.kind
        if kind not in written.refused and (problem := self._direct.scale_up(deployment, decision, log)):
            written.refused[kind] = problem

    def _orphaned_deployment(self, model: TritonModel) -> Object | None:
        """Returns the Deployment that has lost its owner reference, to adopt it unchanged; None if there is none."""
        found = self._store.of_kind(model.key, kinds.DEPLOYMENT.kind)
        return next((d for d in found if d["metadata"]["name"] == model.name and is_orphan(d, model.name)), None)

    def _with_suspension(self, key: str, before: TritonModelStatus) -> TritonModelStatus:
        """Returns `before`. A new TritonModel gets the suspension of the deleted one with the same name."""
        until = None if before.observed_generation else self._suspended.get(key)
        return before.model_copy(update={"scraping_suspended_until": until}) if until else before

    def _remember_suspension(self, key: str, until: str | None, now: str) -> None:
        """Remembers until when the scraping is suspended, in case the TritonModel is deleted and created again."""
        if self._suspended.get(key) == until:
            return
        self._suspended.pop(key, None)
        if until:
            # In place: other threads add theirs at the same time.
            for other, end in list(self._suspended.items()):
                if end <= now:
                    self._suspended.pop(other, None)
            self._suspended[key] = until

    def _set_waiting(self, key: str, status: TritonModelStatus, observed: Observation) -> None:
        """Tells the prober whether this TritonModel waits for Prometheus to use a new threshold."""
        live = next((c for c in status.conditions if c.type == THRESHOLD_LIVE), None)
        has_thresholds = observed.has_rules and not observed.requested.invalid
        waits = has_thresholds and live is not None and live.status != "True"
        stale = (
            observed.answer is not None and bool(observed.answer.at) and outdated(observed.answer, status.thresholds)
        )
        self._prober.prometheuses.set_waiting(key, waits=waits, outdated=stale)

    def _clean_up(self, key: str) -> float | None:
        """Deletes the leftovers of a deleted TritonModel. Returns the requeue delay, None when nothing is left."""
        wait = self._collector.clean_up(key)
        if not wait:
            self._server_collector.clean_up(key)
        return wait or None

    def _cluster_capabilities(
        self,
        model: TritonModel,
        pods: Sequence[Object],
        before: TritonModelStatus,
        limits: Mapping[ThresholdKey, float],
    ) -> Choices:
        """Returns the choices for a new pod template: the cluster's capabilities, and what is known about the model."""
        entrypoint, what = entry(model, pods, before)
        return replace(
            self._defaults,
            replicas=max(before.replicas, 1),
            # An ensemble has different rules, so there are none until the type of the entrypoint is known.
            entrypoint=entrypoint if what else "",
            ensemble=what == "Ensemble",
            thresholds=limits,
            monitoring=all(self._served(c.kind) for c in children.CHILDREN if c.condition == MONITORING_AVAILABLE),
            keda=self._served(kinds.SCALED_OBJECT),
        )

    def _wait(
        self,
        key: str,
        cache: ReconcileCache,
        before: TritonModelStatus,
        status: TritonModelStatus,
        observed: Observation,
        now: datetime,
    ) -> timedelta:
        """Returns how long to delay this status update.

        A step that isn't urgent waits for the next step. Every update waits for the answer of a server that has just
        started or changed its readiness.
        """
        if not observed.pending:
            cache.pending = None
        else:
            cache.pending = cache.pending or now
            wait = cache.pending + min(_ANSWER, self._progress) - now
            if timedelta() < wait <= _ANSWER:
                return wait
        first = not before.observed_generation
        if cache.due is None:
            cache.due = now + min(_FIRST_STATUS, self._progress) if first else now
        wait = cache.due - now
        # If the clock was set back, there is no delay.
        held = timedelta() < wait <= self._progress and not (first and all_pods_exist(observed))
        urgent = held and is_urgent(before, status) and self._pace.spend_urgent(key)
        return wait if held and not urgent else timedelta()

    def _write_unread(
        self, raw: Object, before: TritonModelStatus, problem: Problem, log: logging.LoggerAdapter[logging.Logger]
    ) -> None:
        """Writes the reason why the spec can't be read into the status. The children stay as they are."""
        now = self._clock().isoformat(timespec="seconds").replace("+00:00", "Z")
        status = unread(before, problem, now, raw["metadata"].get("generation", 0))
        if status != before:
            log.warning("%s: %s", problem.reason, problem.message)
            self._statuses.write(raw, before, status, log)


def _earliest(one: float | None, other: float | None) -> float | None:
    return min((seconds for seconds in (one, other) if seconds is not None), default=None)


def _reconcile_triggers(raw: Object) -> list[Any]:
    """Returns the parts of a TritonModel whose changes cause a reconcile."""
    return [raw["metadata"].get(k) for k in ("generation", "annotations", "deletionTimestamp")]


def _status(raw: Object) -> TritonModelStatus:
    """Returns the current status; an empty one if another client has written one that can't be read."""
    try:
        return TritonModelStatus.model_validate(raw.get("status", {}))
    except ValidationError:
        return TritonModelStatus()
