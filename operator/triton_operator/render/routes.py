"""The HTTPRoute and the GRPCRoute, by the Gateway API's standard.

Only what clients of a model need is routed: the standard has no way to take one path out of a prefix, so each is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.kinds import Kind, NewerField
from triton_operator.api.route import GatewayReference
from triton_operator.api.status import ROUTED
from triton_operator.api.types import TritonModel

from .child_type import Child, Object
from .common import is_newest, obj, only
from .facts import Facts

_REFUSES = {"Accepted": "False", "ResolvedRefs": "False", "PartiallyInvalid": "True"}
"""Conditions of a route, with the status by which a Gateway's controller refuses it, or a part of it."""
_ALL = 100
_MATCHES = 8
"""How many matches a rule has at most. The Gateway API 1.1 allows so many, and 1.2 for a GRPCRoute."""
PARENTS = "parents"
"""The field of a route's status with the answers of the Gateways' controllers."""
_MODEL = "/v2/models/[^/]+(/versions/[0-9]+)?"
_HTTP = (
    ("GET", "Exact", "/v2"),
    ("GET", "Exact", "/v2/health/live"),
    ("GET", "Exact", "/v2/health/ready"),
    ("GET", "RegularExpression", f"{_MODEL}(/(ready|config|stats))?"),
    ("POST", "RegularExpression", f"{_MODEL}/(infer|generate|generate_stream)"),
)
"""Triton's HTTP API for clients: method, and how the path is compared with what."""
_NO_FORM = {
    "type": "RequestHeaderModifier",
    "requestHeaderModifier": {"set": [{"name": "Content-Type", "value": "application/octet-stream"}]},
}
"""Triton reads JSON with this type too. It takes a form apart, which can end a server without a large stack."""
_SERVICE = "inference.GRPCInferenceService"
_GRPC = (
    *(
        (_SERVICE, method)
        for method in (
            "ModelInfer", "ModelStreamInfer", "ServerLive", "ServerReady", "ModelReady", "ServerMetadata",
            "ModelMetadata", "ModelConfig", "ModelStatistics",
        )
    ),
    ("grpc.health.v1.Health", "Check"),
)  # fmt: skip
"""Triton's gRPC API for clients: service and method."""
_INFERENCE = ("ModelInfer", "ModelStreamInfer")
NOT_INFERENCE = "|".join(
    (
        *(path.replace(".", "[.]") if how == "Exact" else path for verb, how, path in _HTTP if verb == "GET"),
        *(f"/{service}/{method}".replace(".", "[.]") for service, method in _GRPC if method not in _INFERENCE),
    )
)
"""A regular expression for the routed paths that aren't inference."""


_COPY = "RequestMirror"


def http_routes(model: TritonModel, facts: Facts) -> list[Object]:
    """Returns the HTTPRoute if the spec has a route. Without a listener or host names of its own, it carries gRPC too.

    A GRPCRoute with the same listener and host name would be refused by some Gateways. gRPC is HTTP/2, and the Service
    says for its port that it is (appProtocol).
    """
    route = model.spec.route
    if route is None or kinds.HTTP_ROUTE in facts.cluster.missing:
        return []
    http = [{"method": verb, "path": {"type": how, "value": path}} for verb, how, path in _HTTP]
    grpc = [{"path": {"type": "Exact", "value": f"/{service}/{method}"}} for service, method in _GRPC]
    rules = _rules(model, facts, http, "http", _NO_FORM)
    if route.grpc is None:
        rules += _rules(model, facts, grpc, "grpc")
    return [_route(model, kinds.HTTP_ROUTE, route.gateway, route.gateway.listener, route.hostnames, rules)]


def grpc_routes(model: TritonModel, facts: Facts) -> list[Object]:
    """Returns the GRPCRoute if gRPC has a listener or host names of its own."""
    route = model.spec.route
    if route is None or route.grpc is None or kinds.GRPC_ROUTE in facts.cluster.missing:
        return []
    matches = [{"method": {"type": "Exact", "service": service, "method": method}} for service, method in _GRPC]
    listener, hostnames = route.grpc.listener or route.gateway.listener, route.grpc.hostnames or route.hostnames
    rules = _rules(model, facts, matches, "grpc")
    return [_route(model, kinds.GRPC_ROUTE, route.gateway, listener, hostnames, rules)]


def _route(
    model: TritonModel,
    kind: Kind,
    gateway: GatewayReference,
    listener: str | None,
    hostnames: list[str],
    rules: list[Object],
) -> Object:
    parent = _parent(gateway, listener)
    return obj(model, kind, spec={"parentRefs": [parent], "hostnames": hostnames, "rules": rules})


def _parent(gateway: GatewayReference, listener: str | None) -> Object:
    """Returns the reference to the Gateway, with the values that the API server would add."""
    return {
        "group": kinds.HTTP_ROUTE.group,
        "kind": "Gateway",
        "name": gateway.name,
        **({"namespace": gateway.namespace} if gateway.namespace else {}),
        **({"sectionName": listener} if listener else {}),
    }


def _rules(model: TritonModel, facts: Facts, matches: list[Object], port: str, *filters: Object) -> list[Object]:
    """Returns rules that do the same with the requests that one of `matches` is about."""
    weight, canary = facts.canary_weight, names.deployment(model.name, names.CANARY)
    weights = {model.name: 1}
    if weight is not None and model.copies:
        filters = (*filters, *([_copy(_service(canary, port), weight)] if weight else []))
        if weight and port == "http" and model.compares and model.spec.canary is not None:
            compared = {**_service(canary, port), "port": names.ANSWERS_PORT}
            filters = (*filters, _copy(compared, model.spec.canary.compare_percent))
    elif weight is not None:
        weights = {model.name: _ALL - weight, canary: weight}
    backends = [{**_service(name, port), "weight": share} for name, share in weights.items()]
    rest = {"backendRefs": backends, **({"filters": list(filters)} if filters else {})}
    return [{"matches": matches[n : n + _MATCHES], **rest} for n in range(0, len(matches), _MATCHES)]


def _service(name: str, port: str) -> Object:
    return {"group": "", "kind": "Service", "name": name, "port": names.PORTS[port]}


def _copy(service: Object, percent: int) -> Object:
    """Returns a filter that copies so many percent of the requests for this port of a Service."""
    # Before the Gateway API 1.3 it is always all of them.
    part = {} if percent == _ALL else {"percent": percent}
    return {"type": _COPY, "requestMirror": {"backendRef": service, **part}}


def copies(route: Mapping[str, Any]) -> bool:
    """Returns whether this route copies requests."""
    rules = route["spec"].get("rules", [])
    return any(one.get("type") == _COPY for each in rules for one in each.get("filters", []))


def accepted(route: Mapping[str, Any]) -> bool:
    """Returns whether a Gateway's controller has accepted the route as it is, and none refuses it or a part of it."""
    answers = [said for answer in route.get("status", {}).get(PARENTS, []) for said in answer.get("conditions", [])]
    return not any(refusals(route)) and any(
        (said.get("type"), said.get("status")) == ("Accepted", "True") and is_newest(route, said) for said in answers
    )


def refusals(obj: Mapping[str, Any], answers: str = PARENTS) -> Iterator[Mapping[str, Any]]:
    """Yields the conditions by which Gateways' controllers refuse the object as it is, or a part of it.

    `answers`: the field of its status with the answers of the controllers.
    Shapes: https://gateway-api.sigs.k8s.io/reference/spec/#routeparentstatus
    """
    for answer in obj.get("status", {}).get(answers, []):
        for said in answer.get("conditions", []):
            if said.get("status") == _REFUSES.get(said.get("type", "")) and is_newest(obj, said):
                yield said


PERCENT = NewerField(
    # Without it, all requests would be copied.
    "spec.rules.filters.requestMirror.percent", "the Gateway API 1.3", left_out="spec.rules.filters[requestMirror]",
)  # fmt: skip
HTTP = Child(
    kinds.HTTP_ROUTE,
    http_routes,
    needed=lambda model: model.spec.route is not None,
    condition=ROUTED,
    status=only(PARENTS),
    newer=(PERCENT,),
)
GRPC = Child(
    kinds.GRPC_ROUTE,
    grpc_routes,
    needed=lambda model: model.spec.route is not None and model.spec.route.grpc is not None,
    condition=ROUTED,
    status=only(PARENTS),
    newer=(PERCENT,),
)
CHILDREN = (HTTP, GRPC)
