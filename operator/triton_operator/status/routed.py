"""The condition Routed: whether the Gateway has accepted the route."""

from __future__ import annotations

from triton_operator.api import kinds
from triton_operator.api.route import Route
from triton_operator.api.status import ROUTED, Condition
from triton_operator.api.types import TritonModel
from triton_operator.decisions.decide import Decision
from triton_operator.decisions.snapshot import Object, Snapshot
from triton_operator.render import Facts, envoy_gateway, routes
from triton_operator.render.common import is_newest

from .conditions import condition
from .writes import Writes


def routed(snapshot: Snapshot, decision: Decision, writes: Writes) -> Condition | None:
    """Routed: whether the Gateway has accepted the route; None without one."""
    route = snapshot.model.spec.route
    if route is None:
        return None
    missing = decision.facts.cluster.missing
    wanted = [child.kind for child in routes.CHILDREN if child.needed(snapshot.model)]
    if lacking := [kind.kind for kind in wanted if kind in missing]:
        return condition(
            ROUTED, "False", "CRDsMissing",
            f"the cluster doesn't know {' and '.join(lacking)} of gateway.networking.k8s.io/v1: install the Gateway "
            "API 1.1 or later and a controller for it, or remove spec.route; clients in the cluster don't need it",
        )  # fmt: skip
    if refusal := writes.refusal(ROUTED):
        return condition(ROUTED, "False", refusal.reason, refusal.message)
    gateway = gateway_of(snapshot.model, route)
    for kind in wanted:
        if problem := _problem(kind.kind, snapshot.child(kind), routes.PARENTS, gateway):
            return problem
    policy = kinds.BACKEND_TRAFFIC_POLICY
    by_envoy, there = bool(is_by_envoy(snapshot, decision.facts)), snapshot.child(policy)
    problem = _problem(policy.kind, there, envoy_gateway.ANCESTORS, gateway) if by_envoy else None
    # A limit changes often, and the condition Enforced is about that.
    if problem and (
        problem.status == "False" or there is None or not envoy_gateway.was_accepted(there, snapshot.model)
    ):
        return problem
    if route.hash_header and not by_envoy:
        return condition(
            ROUTED, "False", "HashNotSupported",
            f"the Gateway {gateway} has accepted the route, but isn't one of Envoy Gateway, so requests with the same "
            f"{route.hash_header} may go to different servers: use a Gateway of Envoy Gateway, or remove "
            "spec.route.hashHeader",
        )  # fmt: skip
    return condition(
        ROUTED, "True", "Accepted", f"the Gateway {gateway} routes {_says(route)}{_balance(route, by_envoy)}"
    )


def _says(route: Route) -> str:
    if route.grpc is None:
        return f"HTTP and gRPC for {', '.join(route.hostnames)}"
    return f"HTTP for {', '.join(route.hostnames)}, and gRPC for {', '.join(route.grpc.hostnames or route.hostnames)}"


def _balance(route: Route, by_envoy: bool) -> str:
    if route.hash_header:
        return f"; the header {route.hash_header} chooses the server"
    if by_envoy:
        return "; each request goes to a server with few open requests"
    return "; how it balances the servers is its own default"


def gateway_of(model: TritonModel, route: Route) -> str:
    """Returns the namespace and the name of the Gateway."""
    return f"{route.gateway.namespace or model.namespace}/{route.gateway.name}"


def is_by_envoy(snapshot: Snapshot, facts: Facts) -> bool | None:
    """Returns whether the Gateway is one of Envoy Gateway; None if that isn't known yet."""
    if kinds.BACKEND_TRAFFIC_POLICY in facts.cluster.missing:
        return False
    first = next((snapshot.child(child.kind) for child in routes.CHILDREN if child.needed(snapshot.model)), None)
    if first is None:
        return None
    # Answers of the controller of a former Gateway may remain.
    answers = [
        answer["controllerName"]
        for answer in first.get("status", {}).get(routes.PARENTS, [])
        if any(is_newest(first, said) for said in answer.get("conditions", []))
    ]
    return envoy_gateway.CONTROLLER in answers if answers else None


def _problem(kind: str, there: Object | None, field: str, gateway: str) -> Condition | None:
    """Returns why the object isn't accepted, or that this isn't known yet; None if it is accepted.

    `field`: the field of its status with the answers of the Gateways' controllers.
    """
    if there is None:
        return condition(ROUTED, "Unknown", "WaitingForGateway", f"the {kind} is being created")
    answers = [
        said
        for answer in there.get("status", {}).get(field, [])
        for said in answer.get("conditions", [])
        if is_newest(there, said)
    ]
    if (said := next(routes.refusals(there, field), None)) is not None:
        reason, message = said.get("reason") or "Unknown", said.get("message") or "no reason given"
        part = "a part of " if said["type"] == "PartiallyInvalid" else ""
        return condition(
            ROUTED, "False", str(reason), f"the Gateway {gateway} refuses {part}the {there['kind']}: {message}"
        )
    if not any(said.get("type") == "Accepted" for said in answers):
        return condition(
            ROUTED, "Unknown", "WaitingForGateway",
            f"no controller has accepted the {kind} yet: check that the Gateway {gateway} exists (kubectl get gateway) "
            "and that its controller runs",
        )  # fmt: skip
    return None
