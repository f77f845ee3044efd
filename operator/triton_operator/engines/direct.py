"""The engine Direct: decides from the servers' counters how many servers the load needs.

A HorizontalPodAutoscaler removes them, and adds them too if Prometheus has the load.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from triton_operator.api.series import FAILURES_PER_REQUEST, series_by_threshold
from triton_operator.api.servers import Subject
from triton_operator.api.thresholds import (
    ENSEMBLE_COEFFICIENT,
    MAX_CACHE_USAGE_PER_REPLICA,
    MAX_QPS_PER_REPLICA,
    MAX_STREAMS_PER_REPLICA,
    MAX_TPS_PER_REPLICA,
    TOKEN_COEFFICIENT,
    ThresholdKey,
)
from triton_operator.api.types import TritonModel
from triton_operator.scaling import Observed, ScaleDecision, State, decide

from . import hpa
from .engine import Decided, Engine, Scaled, Verdict


def _counts(model: TritonModel, entrypoint: str, steps: Collection[str] | None) -> Subject:
    """Returns what is counted. Also without a limit, so that a new one decides by the last minute at once."""
    named = series_by_threshold(model.spec.monitoring)
    subject = Subject(
        entrypoint,
        tokens=named[MAX_TPS_PER_REPLICA],
        streams=named[MAX_STREAMS_PER_REPLICA],
        cache=named[MAX_CACHE_USAGE_PER_REPLICA],
    )
    if steps is None:
        return subject
    return replace(subject, steps=frozenset(steps), failures_per_request=FAILURES_PER_REQUEST)


def _decide(scaled: Scaled, state: object | None, elapsed: float) -> Decided:
    """Returns the engine's decision; none before there is something to scale."""
    scaling, deployment = scaled.model.scaling, scaled.deployment
    autoscaler = scaled.objects.get(hpa.SCALER.kind)
    if scaled.histories is None or scaling is None or deployment is None or autoscaler is None:
        return Decided(scaled.known)
    spec, limits = autoscaler["spec"], scaled.limits
    observed = Observed(
        now=elapsed,
        histories=scaled.histories,
        per_server=limits.get(ThresholdKey(MAX_QPS_PER_REPLICA.name), math.inf),
        tokens_per_server=_tokens_per_server(limits),
        streams_per_server=limits.get(ThresholdKey(MAX_STREAMS_PER_REPLICA.name), math.inf),
        cache_per_server=limits.get(ThresholdKey(MAX_CACHE_USAGE_PER_REPLICA.name), math.inf),
        coefficient=limits.get(ThresholdKey(ENSEMBLE_COEFFICIENT.name), 1),
        least=scaling.min,
        most=scaling.max,
        utilization=scaling.utilization,
        predict=scaling.predict,
        replicas=deployment["spec"]["replicas"],
        floor=spec.get(hpa.SCALER.minimum, 1),
        behavior=spec.get("behavior", {}),
        limited=_may_remove(autoscaler),
        rollout=scaled.rolls_out,
    )
    state, scale = decide(state if isinstance(state, State) else None, observed)
    return Decided(replace(scaled.known, floor=scale.floor), state, scale)


def _says(scaled: Scaled, scale: ScaleDecision | None) -> Verdict:
    """Returns what the HorizontalPodAutoscaler reports. Without its metric, this engine still adds servers."""
    verdict = hpa.says(scaled, scale)
    if verdict.status == "False" and scale is not None:
        return verdict._replace(message=verdict.message + "; the engine Direct still adds servers")
    return verdict


def _tokens_per_server(limits: Mapping[ThresholdKey, float]) -> float:
    """Returns the capacity of one server in tokens per second as it counts them; infinite if there is none."""
    capacity = limits.get(ThresholdKey(MAX_TPS_PER_REPLICA.name), math.inf)
    coefficient = limits.get(ThresholdKey(TOKEN_COEFFICIENT.name), math.inf)
    return capacity if math.isinf(coefficient) else capacity / coefficient


def _may_remove(autoscaler: Mapping[str, Any]) -> bool:
    """Whether the HorizontalPodAutoscaler may remove servers that the load needs.

    It may if it would have fewer servers and its minimum or its policies prevent it. It may also if it doesn't get the
    load: when the metric comes back, it may be that of a short time, and too low.
    """
    conditions = autoscaler.get("status", {}).get("conditions", [])
    states = {c["type"]: (c["status"], c.get("reason")) for c in conditions}
    status, reason = states.get("ScalingLimited", ("", ""))
    blind = states.get("ScalingActive", ("", ""))[0] == "False"
    return blind or (status == "True" and reason in ("TooFewReplicas", "ScaleDownLimit"))


ENGINE = Engine("Direct", hpa.SCALER, _says, counts=_counts, decide=_decide)
