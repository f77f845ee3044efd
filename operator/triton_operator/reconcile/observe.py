"""Looks at what has become of one TritonModel: its objects, its pods, its servers, and Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind
from triton_operator.api.monitoring import Answer
from triton_operator.api.thresholds import Thresholds
from triton_operator.api.types import TritonModel
from triton_operator.cluster.monitoring import Monitoring
from triton_operator.cluster.prometheus import Prometheuses
from triton_operator.cluster.store import Store
from triton_operator.cluster.triton import Servers, all_ready
from triton_operator.render import Choices
from triton_operator.status.load import in_effect
from triton_operator.status.observation import Observation, Problem
from triton_operator.status.pods import server

from .memory import Heard, Memory

Object = dict[str, Any]
_FRESH = timedelta(seconds=55)
"""How long it is taken as still true that Prometheus compares with all that is set: nothing tells when that ends."""


class Observer:
    """Sees what TritonModels have come to. Safe to use from several threads, one a TritonModel."""

    def __init__(
        self,
        store: Store,
        servers: Servers,
        monitoring: Monitoring,
        prometheuses: Prometheuses,
        clock: Callable[[], datetime],
    ) -> None:
        self._store, self._servers, self._clock = store, servers, clock
        self._monitoring, self._prometheuses = monitoring, prometheuses

    def forget(self, key: str) -> None:
        """It is gone."""
        self._servers.forget(key)
        self._prometheuses.settled(key)

    def look(
        self,
        model: TritonModel,
        choices: Choices,
        desired: Iterable[Object],
        asked: Thresholds,
        refused: Mapping[str, Problem],
        memory: Memory,
    ) -> Observation:
        """What there is after the writes. `asked`: what the annotations say; `refused`: what the writes came to."""
        key = model.key
        children = self._store.children(key, model.metadata.uid)
        pods = self._store.of_kind(key, kinds.POD.kind)
        servers = [one for pod in pods if (one := server(pod))]
        seen = Observation(
            template=_template(desired),
            delivery=choices.delivery,
            deployment=one_of(children, kinds.DEPLOYMENT),
            pods=tuple(pods),
            indexes=self._servers.indexes(key, servers),
            refused=refused,
            autoscaler=one_of(children, kinds.AUTOSCALER),
            asked=asked,
            thresholds=choices.thresholds,
            installed=self._monitoring.installed() if choices.monitoring and model.spec.monitoring.enabled else None,
            has_rules=bool(choices.entrypoint),
        )
        return replace(seen, answer=self._answer(model, seen, memory))

    def _answer(self, model: TritonModel, seen: Observation, memory: Memory) -> Answer | None:
        """What the Prometheus that evaluates this model's rules says; None where there is none to ask, or nothing that
        it could be asked. Where all that is set was in effect a moment ago, it isn't asked again."""
        url = self._url(model, seen)
        if not url:
            self._prometheuses.settled(model.key)
            return None
        counter, now = model.spec.monitoring.token_counter or "", self._clock()
        heard = memory.heard
        if heard is not None and (heard.url, heard.counter) == (url, counter):
            # A clock can be set back.
            fresh = timedelta() <= now - heard.at < _FRESH
            if fresh and in_effect(seen, heard.answer):
                return heard.answer
        answer = self._prometheuses.ask(url, model.key, counter)
        if in_effect(seen, answer):
            self._prometheuses.settled(model.key)
        memory.heard = Heard(url, counter, answer, now)
        return answer

    def _url(self, model: TritonModel, seen: Observation) -> str:
        """Of the Prometheus that evaluates this model's rules; "" where there is none, or nothing to ask it."""
        if seen.installed is None or not seen.has_rules or seen.asked.wrong:
            return ""
        selecting = seen.installed.selecting(model.monitoring_labels, model.namespace)
        return self._monitoring.url or (selecting[0].url if selecting else "")


def answered(seen: Observation) -> bool:
    """Whether every server that has started told of its models, and has them all."""
    servers = [pod for pod in seen.pods if server(pod)]
    return len(seen.indexes) == len(servers) and all(map(all_ready, seen.indexes.values()))


def one_of(objects: Iterable[Object], kind: Kind) -> Object | None:
    return next((o for o in objects if o["kind"] == kind.kind), None)


def _template(desired: Iterable[Object]) -> str:
    deployment = next(o for o in desired if o["kind"] == kinds.DEPLOYMENT.kind)
    return str(deployment["metadata"]["annotations"][names.ANNOTATION_TEMPLATE])
