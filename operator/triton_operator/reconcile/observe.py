"""Collects the input of the status: objects, pods, and the last answers of the servers and of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind
from triton_operator.api.monitoring import Answer, Installed
from triton_operator.api.status import AutoscalingStatus
from triton_operator.api.thresholds import Thresholds
from triton_operator.api.types import TritonModel
from triton_operator.cluster.monitoring import Monitoring
from triton_operator.cluster.store import Store
from triton_operator.plan import applied_fields
from triton_operator.probe import Prober
from triton_operator.probe.servers import ServerAnswers
from triton_operator.render import Choices, selector
from triton_operator.render.scaled_object import address
from triton_operator.status.observation import Listed, Observation, Problem
from triton_operator.status.pods import server

Object = dict[str, Any]


class Observer:
    """Observes TritonModels, and tells the prober what to poll.

    Waits only for the API server. Safe to use from several threads, with one thread at a time for each key.
    """

    def __init__(self, store: Store, prober: Prober, monitoring: Monitoring) -> None:
        self._store, self._prober, self._monitoring = store, prober, monitoring

    def forget(self, key: str) -> None:
        """Stops polling for a deleted TritonModel."""
        self._prober.forget(key)

    def servers(self, model: TritonModel, choices: Choices) -> ServerAnswers:
        """Returns the last answers of the servers of `model`, which the prober polls from now on."""
        pods = self._store.of_kind(model.key, kinds.POD.kind)
        explicit = model.spec.server.model_control == "explicit"
        return self._prober.servers.track(
            model.key,
            [one for pod in pods if (one := server(pod))],
            explicit=explicit,
            entrypoint=choices.entrypoint,
        )

    def observe(
        self,
        model: TritonModel,
        choices: Choices,
        desired: Iterable[Object],
        requested: Thresholds,
        refused: Mapping[str, Problem],
        scaling: AutoscalingStatus | None,
        listed: Listed,
        servers: ServerAnswers,
    ) -> Observation:
        """Returns the state after the writes.

        - `requested`: the thresholds in the annotations.
        - `refused`: refused writes, by kind.
        - `scaling`: the decision of the engine Direct, if it decides.
        - `listed`: the versions of models in the PodMonitor. `servers`: the last answers of the servers.
        """
        key = model.key
        children = self._store.children(key, model.metadata.uid)
        pods = self._store.of_kind(key, kinds.POD.kind)
        deployment = find_kind(children, kinds.DEPLOYMENT)
        observed = Observation(
            template=_template(desired),
            delivery=choices.delivery,
            selector=selector(model, choices),
            newer_template=choices.newer_template,
            deployment=deployment,
            paused=_paused_by_others(deployment),
            pods=tuple(pods),
            indexes=servers.indexes,
            unusable=servers.unusable,
            pending=servers.pending,
            uncounted=servers.uncounted,
            refused=refused,
            autoscaler=find_kind(children, kinds.AUTOSCALER),
            scaled_object=find_kind(children, kinds.SCALED_OBJECT),
            keda=choices.keda,
            prometheus=choices.prometheus,
            scaling=scaling,
            requested=requested,
            thresholds=choices.thresholds,
            installed=self._installed(model, choices),
            has_rules=bool(choices.entrypoint),
            series=listed,
        )
        return replace(observed, answer=self._answer(model, observed))

    def _answer(self, model: TritonModel, observed: Observation) -> Answer | None:
        """Returns the last answer of the Prometheus that scrapes the servers of `model`; None if none does."""
        url = self._url(model, observed.installed)
        if not url:
            self._prober.prometheuses.forget(model.key)
            return None
        return self._prober.prometheuses.track(model.key, url, model.spec.monitoring.token_counter or "")

    def for_keda(self, model: TritonModel, choices: Choices, scaled_object: Object | None) -> str:
        """Returns the URL of the Prometheus that KEDA queries: the one that the operator queries.

        While none is known, it is the last one, which `scaled_object` has. "" without a Prometheus or without KEDA.
        """
        if not model.is_keda:
            return ""
        return self._url(model, self._installed(model, choices)) or address(scaled_object)

    def _installed(self, model: TritonModel, choices: Choices) -> Installed | None:
        return self._monitoring.installed() if choices.monitoring and model.spec.monitoring.enabled else None

    def _url(self, model: TritonModel, installed: Installed | None) -> str:
        """Returns the URL of the Prometheus that scrapes the servers of `model`; "" if none does."""
        if installed is None:
            return ""
        selecting = installed.selecting(model.monitoring_labels, model.namespace)
        return self._monitoring.url or (selecting[0].url if selecting else "")


def find_kind(objects: Iterable[Object], kind: Kind) -> Object | None:
    return next((o for o in objects if o["kind"] == kind.kind), None)


def _paused_by_others(deployment: Object | None) -> bool:
    """Returns whether the Deployment is paused, and not by the operator (change_models.switch)."""
    if deployment is None or not deployment["spec"].get("paused"):
        return False
    return "f:paused" not in applied_fields(deployment).get("f:spec", {})


def _template(desired: Iterable[Object]) -> str:
    deployment = next(o for o in desired if o["kind"] == kinds.DEPLOYMENT.kind)
    return str(deployment["metadata"]["annotations"][names.ANNOTATION_TEMPLATE])
