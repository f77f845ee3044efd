"""The condition Enforced."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from support.observing import seen
from triton_operator.api import kinds
from triton_operator.api.enforcement import ANNOTATION
from triton_operator.api.monitoring import PrometheusAnswer
from triton_operator.api.status import Condition
from triton_operator.pods import Problem
from triton_operator.render.children import BY_NAME
from triton_operator.render.facts import Capabilities, Enforced
from triton_operator.status.enforced import enforced
from triton_operator.status.routed import routed
from triton_operator.status.writes import Writes, writes_of
from unit.status.test_routed import ACCEPTED, MINE, OTHERS, ROUTE, answered

TRUE = {ANNOTATION: "true"}
POLICY = {**answered("BackendTrafficPolicy", ACCEPTED), "spec": {"rateLimit": {}}}
REFUSED = {**answered("BackendTrafficPolicy", ("Accepted", "False", "Invalid")), "spec": {"rateLimit": {}}}
BEFORE = {**answered("BackendTrafficPolicy", ACCEPTED, seen=1), "spec": {"rateLimit": {}}}
CONFLICTED = {**answered("BackendTrafficPolicy", ("Accepted", "False", "Conflicted")), "spec": {"rateLimit": {}}}
FREE = answered("BackendTrafficPolicy", ACCEPTED)
LIMIT = Enforced(80)


def judge(
    *there: dict[str, Any],
    annotations: dict[str, str] = TRUE,
    limit: Enforced | None = LIMIT,
    route: dict[str, Any] | None = ROUTE,
    missing: bool = False,
    left_out: bool = False,
    **fields: Any,
) -> Condition | None:
    model = gen.model(gen.put("metadata.annotations", annotations), **({"route": route} if route else {}))
    lacking = frozenset({kinds.BACKEND_TRAFFIC_POLICY} if missing else ())
    facts = {"cluster": Capabilities(missing=lacking), "enforced": limit}
    snapshot, decision, outcome = seen(model, routes=there, facts=facts, **fields)
    writes = writes_of(snapshot, decision, outcome, decision.memory)
    if left_out:
        newer = [f for f in BY_NAME["BackendTrafficPolicy"].newer if f.left_out == "spec.rateLimit"]
        writes = Writes(left_out={"BackendTrafficPolicy": tuple(newer[:1])})
    return enforced(snapshot, decision, writes, routed(snapshot, decision, writes))


def test_without_the_annotation_there_is_no_condition() -> None:
    assert judge(annotations={}) is None
    assert judge(annotations={ANNOTATION: "false"}) is None


@pytest.mark.parametrize(
    ("there", "fields", "expected", "part"),
    [
        ([], {"annotations": {ANNOTATION: "yes"}, "limit": None}, ("False", "EnforceInvalid"),
         "tritonoperator.io/enforce='yes' is neither 'true' nor 'false'"),
        ([MINE, POLICY], {"annotations": {ANNOTATION: "yes"}}, ("False", "EnforceInvalid"),
         "; max-qps is still enforced"),
        ([], {"route": None, "limit": None}, ("False", "NoRoute"), "only a Gateway can reject requests"),
        ([MINE, POLICY], {"limit": None}, ("False", "NoLimit"), "set the annotation tritonoperator.io/max-qps"),
        ([MINE], {"missing": True}, ("False", "LimitNotSupported"), "needs Envoy Gateway 1.6 or later"),
        ([OTHERS], {}, ("False", "LimitNotSupported"), "the Gateway gateways/models rejects nothing"),
        ([MINE, POLICY], {"left_out": True}, ("False", "LimitNotSupported"), "1.6"),
        ([], {}, ("Unknown", "RouteNotAccepted"), "Routed"),
        ([MINE], {}, ("Unknown", "RouteNotAccepted"), "Routed"),
        ([MINE], {"refused": {"BackendTrafficPolicy": Problem("ApplyRefused", "no")}}, ("False", "ApplyRefused"), "no"),
        ([MINE, REFUSED], {}, ("False", "LimitRefused"), ", and the operator replaces it: words of Invalid"),
        ([MINE, REFUSED], {"route": {**ROUTE, "enforcement": {"failClosed": True}}}, ("False", "LimitRefused"),
         ", and answers every request with an error: words of Invalid"),
        ([MINE, CONFLICTED], {}, ("False", "LimitRefused"), "models refuses the limit: words of Conflicted"),
        ([MINE, FREE], {"limit": Enforced(80, "Later")}, ("False", "LimitRefused"),
         "refuses the BackendTrafficPolicy also without a limit"),
        ([MINE, FREE], {"limit": Enforced(80, "Nothing", "Gateway")}, ("False", "LimitRefused"),
         "has refused every limit, so it rejects nothing"),
        ([MINE, BEFORE], {}, ("Unknown", "WaitingForGateway"), "hasn't accepted the newest limit yet"),
        ([MINE, POLICY], {}, ("True", "Enforced"),
         "the Gateway gateways/models rejects inference requests above 80 a second, counted by each proxy"),
        ([MINE, POLICY], {"limit": Enforced(80, "Gateway", "Gateway")}, ("True", "Enforced"),
         "above 80 a second, counted over all its proxies"),
        ([MINE, POLICY], {"limit": Enforced(80, "Proxy", "Gateway")}, ("True", "Enforced"),
         "because it has refused to count them together: check Envoy Gateway's rate limit service, then set"),
        ([MINE, POLICY],
         {"limit": Enforced(12.5), "route": {**ROUTE, "enforcement": {"clientHeader": "x-c", "clientPercent": 20}}},
         ("True", "Enforced"), "above 12.5 a second, and those of one x-c above 2.5, counted by"),
        ([MINE, POLICY], {"answer": PrometheusAnswer(at_limit=True)}, ("True", "AtLimit"),
         ". The servers get nearly as many now"),
    ],
)  # fmt: skip
def test_says_what_the_gateway_rejects(
    there: list[dict[str, Any]], fields: dict[str, Any], expected: tuple[str, str], part: str
) -> None:
    condition = judge(*there, **fields)
    assert condition is not None
    assert (condition.status, condition.reason) == expected, condition.message
    assert part in condition.message


def test_a_new_limit_doesnt_change_the_condition_routed() -> None:
    snapshot, decision, outcome = seen(gen.model(route=ROUTE), routes=(MINE, BEFORE))
    condition = routed(snapshot, decision, writes_of(snapshot, decision, outcome, decision.memory))
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "Accepted")
