"""Decides above which rate the Gateway rejects requests, and who counts them. Pure.

docs/decisions/0057-enforce-in-the-gateway.md
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from triton_operator.api import enforcement
from triton_operator.api.thresholds import ENSEMBLE_COEFFICIENT, MAX_QPS, ThresholdKey
from triton_operator.api.types import TritonModel
from triton_operator.render import Facts, envoy_gateway
from triton_operator.render.facts import COUNTED_BY, Enforced


def with_enforced(model: TritonModel, facts: Facts, policy: Mapping[str, Any] | None) -> Facts:
    """Returns `facts` with the limit above which the Gateway rejects requests. `policy`: the live one.

    Envoy Gateway answers every request with an error while it finds a policy invalid. So the policy then comes back
    with a limit that is counted in a simpler way, and at last without one. An annotation of the policy has what is
    left, until the limit is removed.
    """
    route, limit = model.spec.route, facts.thresholds.get(ThresholdKey(MAX_QPS.name), math.inf)
    wanted = enforcement.wanted(model.metadata.annotations)
    if wanted is None:
        # Nobody knows what is meant, so it stays as it is.
        wanted = policy is not None and (envoy_gateway.limits(policy) or _before(policy) is not None)
    if route is None or not wanted or math.isinf(limit):
        return facts
    best = COUNTED_BY[0 if facts.settings.rate_limit_service else 1]
    counted_by = best if route.enforcement.fail_closed or policy is None else _left(policy, best, model)
    coefficient = facts.thresholds.get(ThresholdKey(ENSEMBLE_COEFFICIENT.name), 1.0)
    is_live = policy is not None and envoy_gateway.limits(policy) and envoy_gateway.was_accepted(policy, model)
    return replace(facts, enforced=Enforced(limit / coefficient, counted_by, best, is_live))


def _left(policy: Mapping[str, Any], best: str, model: TritonModel) -> str:
    """Returns who counts: `best`, or the best that the Gateway hasn't refused."""
    before = max(best, _before(policy) or best, key=COUNTED_BY.index)
    refused = envoy_gateway.refusal(policy, model)
    if before == "Later" and envoy_gateway.accepted(policy, model):
        return best
    # Another reason is such as that of a policy that conflicts with an older one: then the older one has its effect.
    if refused is None or refused.get("reason") != envoy_gateway.INVALID or before == "Later":
        return before
    if envoy_gateway.limits(policy):
        return COUNTED_BY[COUNTED_BY.index(before) + 1]
    # Without a limit, so that isn't why.
    return "Later" if before == "Nothing" else before


def _before(policy: Mapping[str, Any]) -> str | None:
    """Returns who counts by the policy's annotation; None without it."""
    value = policy["metadata"].get("annotations", {}).get(envoy_gateway.COUNTED_BY)
    return value if value in COUNTED_BY else None
