"""The condition Enforced: whether the Gateway rejects requests above max-qps."""

from __future__ import annotations

from triton_operator.api import enforcement, kinds
from triton_operator.api.status import ENFORCED, Condition
from triton_operator.api.types import TritonModel
from triton_operator.decisions.decide import Decision
from triton_operator.decisions.snapshot import Snapshot
from triton_operator.render import envoy_gateway
from triton_operator.render.facts import Enforced

from .conditions import condition
from .routed import gateway_of, is_by_envoy
from .writes import Writes

_POLICY = kinds.BACKEND_TRAFFIC_POLICY
_AGAIN = f"set the annotation {enforcement.ANNOTATION} to false and to true again"


def enforced(snapshot: Snapshot, decision: Decision, writes: Writes, routed: Condition | None) -> Condition | None:
    """Enforced: whether the Gateway rejects requests above max-qps; None if it shouldn't. `routed`: that condition."""
    model, facts = snapshot.model, decision.facts
    annotations = model.metadata.annotations
    if problem := enforcement.problem(annotations):
        stays = "; max-qps is still enforced" if facts.enforced else ""
        return condition(ENFORCED, "False", "EnforceInvalid", problem + stays)
    if not enforcement.wanted(annotations):
        return None
    if model.spec.route is None:
        return condition(
            ENFORCED, "False", "NoRoute",
            "only a Gateway can reject requests: set spec.route, or remove the annotation "
            f"{enforcement.ANNOTATION}; max-qps still has its alert",
        )  # fmt: skip
    if facts.enforced is None:
        return condition(
            ENFORCED, "False", "NoLimit",
            "nothing is rejected without a limit: set the annotation tritonoperator.io/max-qps",
        )  # fmt: skip
    gateway = gateway_of(model, model.spec.route)
    by_envoy = is_by_envoy(snapshot, facts)
    if by_envoy is False or "spec.rateLimit" in {f.left_out for f in writes.left_out.get(_POLICY.kind, ())}:
        return condition(
            ENFORCED, "False", "LimitNotSupported",
            f"the Gateway {gateway} rejects nothing: that needs Envoy Gateway 1.6 or later",
        )  # fmt: skip
    if refusal := writes.refused.get(_POLICY.kind):
        return condition(ENFORCED, "False", refusal.reason, refusal.message)
    if by_envoy is None or routed is None or routed.status == "Unknown":
        return condition(ENFORCED, "Unknown", "RouteNotAccepted", "see the condition Routed")
    policy = snapshot.child(_POLICY)
    refused = policy and envoy_gateway.refusal(policy, model)
    if policy is not None and refused is not None and envoy_gateway.limits(policy):
        then = ""
        if refused.get("reason") == envoy_gateway.INVALID:
            closed = model.spec.route.enforcement.fail_closed
            then = ", and answers every request with an error" if closed else ", and the operator replaces it"
        said = refused.get("message") or "no reason given"
        return condition(ENFORCED, "False", "LimitRefused", f"the Gateway {gateway} refuses the limit{then}: {said}")
    if facts.enforced.counted_by == "Nothing":
        return condition(
            ENFORCED, "False", "LimitRefused",
            f"the Gateway {gateway} has refused every limit, so it rejects nothing: ask its administrator why, then "
            f"{_AGAIN}",
        )  # fmt: skip
    if facts.enforced.counted_by == "Later":
        return condition(
            ENFORCED, "False", "LimitRefused",
            f"the Gateway {gateway} refuses the BackendTrafficPolicy also without a limit, so it rejects nothing until "
            "it accepts that: see the condition Routed",
        )  # fmt: skip
    if policy is None or not envoy_gateway.accepted(policy, model):
        return condition(
            ENFORCED, "Unknown", "WaitingForGateway", f"the Gateway {gateway} hasn't accepted the newest limit yet"
        )
    near = snapshot.answer is not None and snapshot.answer.at_limit
    return condition(
        ENFORCED, "True", "AtLimit" if near else "Enforced",
        f"the Gateway {gateway} rejects {_above(model, facts.enforced)}"
        f"{'. The servers get nearly as many now' if near else ''}",
    )  # fmt: skip


def _above(model: TritonModel, limit: Enforced) -> str:
    """Returns what is rejected, and who counts."""
    text = f"inference requests above {envoy_gateway.rounded(limit.per_second):.6g} a second"
    fields = model.spec.route.enforcement if model.spec.route else None
    if fields and fields.client_header:
        share = limit.per_second * fields.client_percent / 100
        text += f", and those of one {fields.client_header} above {envoy_gateway.rounded(share):.6g}"
    if limit.counted_by == "Gateway":
        return f"{text}, counted over all its proxies"
    if limit.wanted == "Gateway":
        return (
            f"{text}, counted by each proxy and protocol by itself, because it has refused to count them together: "
            f"check Envoy Gateway's rate limit service, then {_AGAIN}"
        )
    return f"{text}, counted by each proxy and protocol by itself"
