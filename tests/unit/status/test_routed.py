"""The condition Routed, in the words of the Gateway's controller."""

from __future__ import annotations

from typing import Any

import pytest

from support import gen
from support.observing import Object, seen
from triton_operator.api import kinds
from triton_operator.api.kinds import Kind
from triton_operator.api.status import Condition
from triton_operator.pods import Problem
from triton_operator.render.envoy_gateway import CONTROLLER
from triton_operator.render.facts import Capabilities
from triton_operator.status.routed import routed
from triton_operator.status.writes import writes_of

ROUTE = {"gateway": {"name": "models", "namespace": "gateways"}, "hostnames": ["a.example.com", "b.example.com"]}
GRPC = {**ROUTE, "grpc": {"listener": "grpc", "hostnames": ["grpc.example.com"]}}
HASH = {**ROUTE, "hashHeader": "x-sequence"}
ISTIO = "istio.io/gateway-controller"
ACCEPTED, RESOLVED = ("Accepted", "True", "Accepted"), ("ResolvedRefs", "True", "ResolvedRefs")
NOT_ALLOWED = ("Accepted", "False", "NotAllowedByListeners")


def answered(
    kind: str, *conditions: tuple[str, str, str], controller: str = CONTROLLER, generation: int = 2, seen: int = 2
) -> Object:
    """Returns an object with the answer of one controller, which has seen a generation of it."""
    said = [
        {"type": t, "status": s, "reason": r, "message": f"words of {r}", "observedGeneration": seen}
        for t, s, r in conditions
    ]
    field = "ancestors" if kind == "BackendTrafficPolicy" else "parents"
    which = "ancestorRef" if kind == "BackendTrafficPolicy" else "parentRef"
    answers = [{"controllerName": controller, which: ROUTE["gateway"], "conditions": said}] if said else []
    return {"kind": kind, "metadata": {"name": "a", "generation": generation}, "status": {field: answers}}


POLICY = answered("BackendTrafficPolicy", ACCEPTED)
OLD = answered("HTTPRoute", ACCEPTED, seen=1)
OTHERS = answered("HTTPRoute", ACCEPTED, RESOLVED, controller=ISTIO)
MINE = answered("HTTPRoute", ACCEPTED, RESOLVED)
# Envoy Gateway leaves its answer when the route has another Gateway.
BOTH = {**OTHERS, "status": {"parents": [p for o in (answered("HTTPRoute", ACCEPTED, seen=1), OTHERS)
                                         for p in o["status"]["parents"]]}}  # fmt: skip


def judge(
    route: Object | None, *there: Object, missing: frozenset[Kind] = frozenset(), **fields: Any
) -> Condition | None:
    spec = {"route": route} if route else {}
    facts = {"cluster": Capabilities(missing=missing)}
    snapshot, decision, outcome = seen(gen.model(**spec), routes=there, facts=facts, **fields)
    return routed(snapshot, decision, writes_of(snapshot, decision, outcome, decision.memory))


def test_a_model_without_a_route_has_no_such_condition() -> None:
    assert judge(None) is None


@pytest.mark.parametrize(
    ("route", "there", "expected", "part"),
    [
        (ROUTE, [], ("Unknown", "WaitingForGateway"), "the HTTPRoute is being created"),
        (ROUTE, [answered("HTTPRoute")], ("Unknown", "WaitingForGateway"),
         "no controller has accepted the HTTPRoute yet: check that the Gateway gateways/models exists"),
        (ROUTE, [OLD, POLICY], ("Unknown", "WaitingForGateway"), "no controller has accepted the HTTPRoute yet"),
        (ROUTE, [answered("HTTPRoute", NOT_ALLOWED)], ("False", "NotAllowedByListeners"),
         "the Gateway gateways/models refuses the HTTPRoute: words of NotAllowedByListeners"),
        (ROUTE, [answered("HTTPRoute", ("Accepted", "False", "NoMatchingListenerHostname"))],
         ("False", "NoMatchingListenerHostname"), "words of"),
        (ROUTE, [answered("HTTPRoute", ("Accepted", "False", "NoMatchingParent"))], ("False", "NoMatchingParent"), ""),
        (ROUTE, [answered("HTTPRoute", ACCEPTED, ("ResolvedRefs", "False", "UnsupportedValue"))],
         ("False", "UnsupportedValue"), "words of UnsupportedValue"),
        (ROUTE, [answered("HTTPRoute", ("Accepted", "False", ""))], ("False", "Unknown"), ""),
        (ROUTE, [MINE], ("Unknown", "WaitingForGateway"), "the BackendTrafficPolicy is being created"),
        (ROUTE, [MINE, answered("BackendTrafficPolicy")], ("Unknown", "WaitingForGateway"),
         "no controller has accepted the BackendTrafficPolicy"),
        (ROUTE, [MINE, answered("BackendTrafficPolicy", ("Accepted", "False", "Conflicted"))], ("False", "Conflicted"),
         "refuses the BackendTrafficPolicy: words of Conflicted"),
        (ROUTE, [MINE, POLICY], ("True", "Accepted"),
         "the Gateway gateways/models routes HTTP and gRPC for a.example.com, b.example.com; each request goes to a "
         "server with few open requests"),
        (ROUTE, [OTHERS, answered("BackendTrafficPolicy")], ("True", "Accepted"),
         "how it balances the servers is its own default"),
        (GRPC, [MINE, POLICY], ("Unknown", "WaitingForGateway"), "the GRPCRoute is being created"),
        (GRPC, [MINE, POLICY, answered("GRPCRoute", NOT_ALLOWED)], ("False", "NotAllowedByListeners"),
         "refuses the GRPCRoute"),
        (GRPC, [MINE, POLICY, answered("GRPCRoute", ACCEPTED)], ("True", "Accepted"),
         "HTTP for a.example.com, b.example.com, and gRPC for grpc.example.com"),
        (HASH, [MINE, POLICY], ("True", "Accepted"), "the header x-sequence chooses the server"),
        (HASH, [BOTH], ("False", "HashNotSupported"),
         "requests with the same x-sequence may go to different servers"),
        (HASH, [OTHERS], ("False", "HashNotSupported"),
         "requests with the same x-sequence may go to different servers"),
    ],
)  # fmt: skip
def test_quotes_the_gateway(route: Object, there: list[Object], expected: tuple[str, str], part: str) -> None:
    condition = judge(route, *there)
    assert condition is not None
    assert (condition.status, condition.reason) == expected
    assert part in condition.message


@pytest.mark.parametrize(
    ("route", "missing", "part"),
    [
        (ROUTE, {kinds.HTTP_ROUTE, kinds.GRPC_ROUTE}, "doesn't know HTTPRoute of"),
        (GRPC, {kinds.HTTP_ROUTE, kinds.GRPC_ROUTE}, "doesn't know HTTPRoute and GRPCRoute of"),
        (GRPC, {kinds.GRPC_ROUTE}, "doesn't know GRPCRoute of"),
    ],
)
def test_says_which_kind_the_cluster_lacks(route: Object, missing: set[Kind], part: str) -> None:
    condition = judge(route, missing=frozenset(missing))
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "CRDsMissing")
    assert part in condition.message


def test_without_envoy_gateways_kind_the_gateway_balances_by_its_default() -> None:
    condition = judge(ROUTE, MINE, missing=frozenset({kinds.BACKEND_TRAFFIC_POLICY}))
    assert condition is not None
    assert condition.message.endswith("its own default")
    condition = judge(HASH, MINE, missing=frozenset({kinds.BACKEND_TRAFFIC_POLICY}))
    assert condition is not None
    assert condition.reason == "HashNotSupported"


def test_reports_a_refused_write() -> None:
    condition = judge(ROUTE, MINE, refused={"BackendTrafficPolicy": Problem("ApplyRefused", "no")})
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("False", "ApplyRefused", "no")
