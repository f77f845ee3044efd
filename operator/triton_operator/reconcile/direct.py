"""The engine Direct: reads the servers' counters and adds servers."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.servers import Index, Subject
from triton_operator.api.status import AutoscalingStatus, TritonModelStatus
from triton_operator.api.thresholds import ENSEMBLE_COEFFICIENT, MAX_QPS_PER_REPLICA, ThresholdKey
from triton_operator.api.types import TritonModel
from triton_operator.cluster.api import ApiError, KubernetesApi
from triton_operator.probe import Prober
from triton_operator.render import Choices
from triton_operator.render.rules.subject import FAILURES_PER_REQUEST
from triton_operator.scaling import Decision, Observed, decide
from triton_operator.status import pods as of_pods
from triton_operator.status.observation import Problem

from .cache import ReconcileCache

Object = dict[str, Any]
OTHERS_SCALED = (404, 409, 422)
"""HTTP statuses that mean that the number of servers, or the Deployment, has changed meanwhile."""


class DirectEngine:
    """Scales TritonModels up. Safe to use from several threads, with one thread at a time for each key.

    - `on_scale_up`: called after each scale-up.
    - `elapsed`: the prober's monotonic clock, in seconds.
    """

    def __init__(
        self, api: KubernetesApi, prober: Prober, on_scale_up: Callable[[], None], elapsed: Callable[[], float]
    ) -> None:
        self._api, self._prober, self._on_scale_up, self._elapsed = api, prober, on_scale_up, elapsed

    def decide(
        self,
        model: TritonModel,
        choices: Choices,
        deployment: Object | None,
        autoscaler: Object | None,
        pods: Sequence[Object],
        before: TritonModelStatus,
        cache: ReconcileCache,
        indexes: Mapping[str, Index] = MappingProxyType({}),
    ) -> Decision | None:
        """Returns the decision; None with another engine, and until there is something to scale.

        `indexes`: the last answers of the servers, because the status doesn't have all models.

        From then on the prober reads the servers' counters. Servers count when they are ready, so that the requests of
        a warm-up don't.
        """
        wanted = model.scaling
        if wanted is None or not model.is_direct or not (deployment and autoscaler and choices.entrypoint):
            self._prober.loads.forget(model.key)
            cache.scaling = None
            return None
        servers = [one for pod in pods if of_pods.is_ready(pod) and (one := of_pods.server(pod))]
        template = deployment["metadata"].get("annotations", {}).get(names.ANNOTATION_TEMPLATE, "")
        spec = autoscaler["spec"]
        seen = Observed(
            now=self._elapsed(),
            histories=self._prober.loads.track(model.key, servers, _subject(choices, before, indexes)),
            per_server=choices.thresholds.get(ThresholdKey(MAX_QPS_PER_REPLICA.name), math.inf),
            coefficient=choices.thresholds.get(ThresholdKey(ENSEMBLE_COEFFICIENT.name), 1),
            least=wanted.min,
            most=wanted.max,
            utilization=wanted.utilization,
            predict=wanted.predict,
            replicas=deployment["spec"]["replicas"],
            floor=spec.get("minReplicas", 1),
            behavior=spec.get("behavior", {}),
            limited=_may_remove(autoscaler),
            rollout=any(of_pods.alive(pod) and not of_pods.is_current(pod, template) for pod in pods),
        )
        cache.scaling, decision = decide(cache.scaling, seen)
        return decision

    def scale_up(
        self, deployment: Object, decision: Decision, log: logging.LoggerAdapter[logging.Logger]
    ) -> Problem | None:
        """Adds the servers of `decision`; returns the problem if the API server refuses it.

        Leaves the number as it is if it has changed meanwhile: the next decision comes in two seconds. Raises ApiError
        for failures that a retry may fix.
        """
        if decision.target <= deployment["spec"]["replicas"]:
            return None
        try:
            self._api.scale(deployment, kinds.DEPLOYMENT, decision.target)
        except ApiError as error:
            if error.transient:
                raise
            if error.code in OTHERS_SCALED:
                return None
            log.warning("could not scale up: %s", error.message)
            return Problem("ScaleRefused", f"the API server refuses to scale the Deployment: {error.message}")
        log.info("%s", decision.message)
        self._on_scale_up()
        return None


def scaling_status(decision: Decision | None, before: AutoscalingStatus | None, now: str) -> AutoscalingStatus | None:
    """Returns the status of the decision: `before` if the decision hasn't changed, None without a decision."""
    if decision is None:
        return None
    if before is not None and (before.desired, before.reason) == (decision.floor, decision.reason):
        return before
    load = "" if decision.load is None else f"{decision.load:.3g}"
    return AutoscalingStatus(
        desired=decision.floor, load=load, reason=decision.reason, message=decision.message, time=now
    )


def _subject(choices: Choices, before: TritonModelStatus, indexes: Mapping[str, Index]) -> Subject:
    if not choices.ensemble:
        return Subject(choices.entrypoint)
    reported = (entry.name for index in indexes.values() for entry in index)
    steps = frozenset((*reported, *(one.name for one in before.models))) - {choices.entrypoint}
    return Subject(choices.entrypoint, steps, FAILURES_PER_REQUEST)


def _may_remove(autoscaler: Object) -> bool:
    """Whether the HorizontalPodAutoscaler may remove servers that the load needs.

    It may if it would have fewer servers and its minimum or its policies prevent it. It may also if it doesn't get the
    load: when the metric comes back, it may be that of a short time, and too low.
    """
    conditions = autoscaler.get("status", {}).get("conditions", [])
    found = {c["type"]: (c["status"], c.get("reason")) for c in conditions}
    status, reason = found.get("ScalingLimited", ("", ""))
    blind = found.get("ScalingActive", ("", ""))[0] == "False"
    return blind or (status == "True" and reason in ("TooFewReplicas", "ScaleDownLimit"))
