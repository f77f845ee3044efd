"""The route of a TritonModel through a Gateway."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .fields import Base, config, rule

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = rf"{_LABEL}(\.{_LABEL})*"
Hostname = Annotated[str, Field(min_length=1, max_length=253, pattern=rf"^(\*\.)?{_DOMAIN}$")]
Hostnames = Annotated[
    list[Hostname], Field(min_length=1, max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"})
]
Listener = Annotated[str, Field(min_length=1, max_length=253, pattern=f"^{_DOMAIN}$")]


class GatewayReference(Base):
    """A Gateway, and one of its listeners."""

    name: Annotated[str, Field(min_length=1, max_length=253, pattern=f"^{_DOMAIN}$")]
    """Name of the Gateway."""
    namespace: Annotated[str, Field(min_length=1, max_length=63, pattern=f"^{_LABEL}$")] | None = None
    """Namespace of the Gateway, whose listener must allow routes of this namespace. Default: the TritonModel's."""
    listener: Listener | None = None
    """Name of the listener. Default: every listener that allows the route."""


class GrpcRoute(Base):
    """The part of a route that is gRPC's own."""

    model_config = config(
        rule(
            "has(self.listener) || has(self.hostnames)",
            "grpc needs listener or hostnames, because else it is like HTTP: set one of them, or remove grpc",
        )
    )

    listener: Listener | None = None
    """Name of the listener for gRPC. Default: gateway.listener."""
    hostnames: Hostnames | None = None
    """Host names for gRPC. Default: those for HTTP."""


HeaderName = Annotated[str, Field(min_length=1, max_length=64, pattern="^[A-Za-z0-9-]+$")]


class Enforcement(Base):
    """How the Gateway rejects requests above max-qps."""

    client_header: HeaderName | None = None
    """A header that names the client: each gets at most clientPercent of max-qps, and all requests without the header
    get it together. Clients choose their headers, unless the Gateway sets this one. Default: clients aren't told apart.
    """
    client_percent: Annotated[int, Field(ge=1, le=100)] = 50
    """The part of max-qps that one client may use, in percent. It needs clientHeader."""
    fail_closed: bool = False
    """Whether clients get an error while the Gateway refuses the limit. By default it then has a weaker one, or none,
    and the condition Enforced says it."""


class Route(Base):
    """How clients outside of the cluster reach the servers, through a Gateway of the Gateway API.

    The operator creates an HTTPRoute. It has the paths of Triton's inference, health, metadata and statistics; those of
    its administration (loading, shared memory, tracing, logging) aren't routed.
    """

    gateway: GatewayReference
    """The Gateway."""
    hostnames: Hostnames
    """Host names that clients use, e.g. detection.example.com or *.example.com. No other route of the Gateway should
    have them, because the older one wins."""
    grpc: GrpcRoute | None = None
    """A listener or host names of their own for gRPC: then the operator creates a GRPCRoute for it. Default: the
    HTTPRoute has both, because many Gateways refuse a GRPCRoute beside an HTTPRoute with the same listener and host
    name."""
    hash_header: HeaderName | None = None
    """A header that names a sequence: all requests with the same value go to the same server, for stateful models. It
    needs Envoy Gateway. Default: each request goes to a server with few open requests, where the Gateway can."""
    enforcement: Enforcement = Enforcement()
    """How the Gateway rejects requests above max-qps, with the annotation tritonoperator.io/enforce: "true". It needs
    Envoy Gateway."""
