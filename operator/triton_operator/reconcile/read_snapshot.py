"""Reads what is known about one TritonModel at one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from triton_operator import engines
from triton_operator.api import kinds, names, server_access, thresholds
from triton_operator.api.monitoring import Installed, PrometheusAnswer
from triton_operator.api.series import FAILURES_PER_REQUEST, series_by_threshold
from triton_operator.api.servers import ChangeOutcome, Comparison, Index, MemoryGrowth, RunningServer, Subject
from triton_operator.api.status import TritonModelStatus
from triton_operator.api.thresholds import Thresholds
from triton_operator.api.types import TritonModel
from triton_operator.cluster.store import Store
from triton_operator.decisions import groups
from triton_operator.decisions.canary import is_judged
from triton_operator.decisions.snapshot import Cluster, Snapshot, find_kind
from triton_operator.plan import is_orphan
from triton_operator.pods import Pod, Problem
from triton_operator.pods.group import Group, Servers, by_group, deployment_of, template_of
from triton_operator.pods.served import served
from triton_operator.probe import Prober
from triton_operator.render import Facts, readiness

Object = dict[str, Any]


class SnapshotReader:
    """Reads snapshots, and tells the prober what to poll from then on.

    Sends no request. Safe to use from several threads, with one thread at a time for each key.

    - `defaults`: the facts for a TritonModel that isn't deployed yet.
    - `clock`: returns the time.
    - `policies`: return the groups of servers beside the one that every TritonModel has.
    """

    def __init__(
        self,
        store: Store,
        prober: Prober,
        defaults: Facts,
        clock: Callable[[], datetime],
        policies: Sequence[groups.Policy] = groups.POLICIES,
    ) -> None:
        self._store, self._prober, self._defaults, self._clock = store, prober, defaults, clock
        self._policies = policies

    def forget(self, key: str) -> None:
        """Stops polling for a deleted TritonModel."""
        self._prober.forget(key)

    def read(
        self,
        model: TritonModel,
        raw: Object,
        before: TritonModelStatus,
        cluster: Cluster,
        unreadable: Mapping[str, Problem],
    ) -> Snapshot:
        """Returns the snapshot of a TritonModel.

        `unreadable`: the problem of each kind that can't be read.
        """
        key = model.key
        owned = tuple(self._store.children(key, model.metadata.uid))
        pods = self._pods(key)
        wanted = groups.wanted(model, before, _servers(model, owned), self._policies)
        found, ending = _groups(wanted, owned, pods)
        if any(group.deployment is None for group in found):
            found, ending = _groups(wanted, (*owned, *self._orphaned_deployments(model)), pods)
        requested = thresholds.of(raw)
        facts = self._facts(raw, requested, found[0], before, cluster)
        monitored = cluster.capabilities.monitoring and model.spec.monitoring.enabled
        installed = cluster.installed if monitored else None
        url = _url(model, installed, cluster.prometheus)
        facts = replace(facts, prometheus=url)
        started = [(pod, server) for pod in pods if (server := pod.server)]
        # Before the answers: it refreshes those of servers whose change has ended.
        changes = self._changes(key, found)
        open_servers = [server for pod, server in started if not server_access.closes_index(pod.arguments)]
        servers = self._prober.servers.track(
            key,
            open_servers,
            explicit=model.is_explicit,
            entrypoint=facts.entrypoint,
            gpu_models={server.uid: pod.gpu_models for pod, server in started},
            readiness=_readiness(found),
        )
        counted = found if is_judged(model, before) else found[:1]
        subject = _subject(found[0], owned, facts, before, servers.indexes, judged=len(counted) > 1)
        if subject is None:
            self._prober.loads.forget(key)
        return Snapshot(
            model=model,
            raw=raw,
            before=before,
            requested=requested,
            children=owned,
            groups=found,
            ending=ending,
            lost=frozenset(self._store.lost(key)),
            unreadable=unreadable,
            facts=facts,
            installed=installed,
            answer=self._answer(model, url),
            servers=servers,
            histories=self._prober.loads.track(key, _serving(counted), subject) if subject else None,
            comparisons=self._comparisons(key, model, counted[1:]),
            growing=self._growing(key, pods),
            changes=changes,
            time=self._clock(),
        )

    def after_writes(self, snapshot: Snapshot) -> Snapshot:
        """Returns `snapshot` with the children and pods of now."""
        key, uid = snapshot.model.key, snapshot.model.metadata.uid
        owned = tuple(self._store.children(key, uid, snapshot.children))
        found, ending = _groups(snapshot.groups, owned, self._pods(key))
        return replace(snapshot, children=owned, groups=found, ending=ending)

    def _pods(self, key: str) -> tuple[Pod, ...]:
        return tuple(map(Pod, self._store.of_kind(key, kinds.POD.kind)))

    def _comparisons(self, key: str, model: TritonModel, judged: Iterable[Group]) -> Mapping[str, Comparison]:
        """Returns what the answers of these servers, which are a canary's, have in common with the others'."""
        # Those that aren't ready now have compared answers before.
        servers = [server for group in judged for pod in group.pods if (server := pod.server)]
        if not model.compares or not servers:
            self._prober.comparisons.forget(key)
            return {}
        known = self._prober.comparisons.track(key, servers, None)
        return {pod: found for pod, found in known.items() if found is not None}

    def _growing(self, key: str, pods: Iterable[Pod]) -> Mapping[str, MemoryGrowth] | None:
        """Returns the servers whose memory grows steadily, by pod; None while one hasn't been polled."""
        servers = [server for pod in pods if pod.shows_processes and (server := pod.server)]
        if not servers:
            self._prober.memory.forget(key)
            return {}
        known = self._prober.memory.track(key, servers, None)
        if self._prober.memory.is_pending(key):
            return None
        return {pod: growth for pod, growth in known.items() if growth is not None}

    def _changes(self, key: str, those: Iterable[Group]) -> Mapping[str, ChangeOutcome]:
        """Returns uid of a server → what has become of the change of its models."""
        changed = [group for group in those if group.model.changes_models]
        if not changed:
            self._prober.changes.forget(key)
            return {}
        return self._prober.changes.outcomes(
            key,
            [
                (server, group.model.spec.server.load_models)
                for group in changed
                for pod in group.pods
                if (server := pod.server)
            ],
        )

    def _facts(
        self,
        raw: Object,
        requested: Thresholds,
        main: Group,
        before: TritonModelStatus,
        cluster: Cluster,
    ) -> Facts:
        now_served = served(main.model, main.pods, main.template, before)
        return replace(
            self._defaults,
            delivery=cluster.delivery,
            replicas=max(before.replicas, 1),
            # An ensemble has different rules, so there are none until the type of the entrypoint is known.
            entrypoint=now_served.entrypoint if now_served.type else "",
            ensemble=now_served.type == "Ensemble",
            decoupled=tuple(now_served.decoupled),
            thresholds=thresholds.effective_of(raw, requested),
            cluster=cluster.capabilities,
        )

    def _orphaned_deployments(self, model: TritonModel) -> list[Object]:
        """Returns the Deployments that have lost their owner reference, to adopt them unchanged."""
        return [d for d in self._store.of_kind(model.key, kinds.DEPLOYMENT.kind) if is_orphan(d, model.name)]

    def _answer(self, model: TritonModel, url: str) -> PrometheusAnswer | None:
        if not url:
            self._prober.prometheuses.forget(model.key)
            return None
        series = (one for named in series_by_threshold(model.spec.monitoring).values() for one in named)
        metrics = frozenset(name for one in series for name in one.names)
        return self._prober.prometheuses.track(model.key, url, metrics)


def _servers(model: TritonModel, objects: Sequence[Object]) -> int:
    """Returns the number of servers that the group without a name should have."""
    if (there := deployment_of(objects, names.deployment(model.name))) is not None:
        return Servers(there).desired
    return 1 if model.spec.replicas is None else model.spec.replicas


def _groups(
    wanted: Iterable[Group], objects: Sequence[Object], pods: Iterable[Pod]
) -> tuple[tuple[Group, ...], tuple[Pod, ...]]:
    """Returns the groups with their live Deployments and pods, and the pods of no group."""
    found, rest = [], by_group(pods)
    for group in wanted:
        deployment = deployment_of(objects, names.deployment(group.model.name, group.name))
        mine = rest.pop(group.name, ())
        found.append(replace(group, deployment=deployment, pods=mine, template=template_of(deployment)))
    return tuple(found), tuple(pod for mine in rest.values() for pod in mine)


def _url(model: TritonModel, installed: Installed | None, chosen: str) -> str:
    """Returns the URL of the Prometheus that scrapes the servers of `model`; "" if none does.

    `chosen`: the URL in the operator's settings; "" without.
    """
    if installed is None:
        return ""
    selecting = installed.selecting(model.monitoring_labels, model.namespace)
    return chosen or (selecting[0].url if selecting else "")


def _subject(
    main: Group,
    owned: Sequence[Object],
    facts: Facts,
    before: TritonModelStatus,
    indexes: Mapping[str, Index],
    *,
    judged: bool,
) -> Subject | None:
    """Returns what the engine, or the gate of a canary, counts; None if neither does, or there is nothing to count yet.

    - `indexes`: the last answers of the servers, because the status doesn't have all models.
    - `judged`: whether there is a canary to judge.
    """
    engine = engines.of(main.model)
    scales = engine is not None and engine.counts and find_kind(owned, engine.scaler.kind) is not None
    counts = engine.counts if engine is not None and scales else None
    if not (counts or judged) or main.deployment is None or not facts.entrypoint:
        return None
    steps = None
    if facts.ensemble:
        reported = (entry.name for index in indexes.values() for entry in index)
        steps = {*reported, *(state.name for state in before.models)} - {facts.entrypoint}
    if counts:
        return counts(main.model, facts.entrypoint, steps)
    return Subject(facts.entrypoint, frozenset(steps or ()), FAILURES_PER_REQUEST if facts.ensemble else 1)


def _readiness(those: Iterable[Group]) -> dict[str, str]:
    """Returns the path of Triton's readiness for servers that may be evicted, by their uid.

    Those of an earlier pod template may have another entrypoint.
    """
    return {
        server.uid: readiness.path(group.model)
        for group in those
        if group.model.spec.health_request is not None
        for pod in group.current
        if pod.stopped_answering and (server := pod.server)
    }


def _serving(those: Iterable[Group]) -> list[RunningServer]:
    """Returns the ready servers. One that is starting counts the requests of its warm-up."""
    return [server for group in those for pod in group.pods if pod.is_ready and (server := pod.server)]
