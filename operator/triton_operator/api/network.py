"""The network policy of a TritonModel, in the words of networking.k8s.io/v1."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from .fields import Base, LabelValue, config, rule

PortNumberOrName = Annotated[
    int | str,
    WithJsonSchema(
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}],
         "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "minimum": 1, "maximum": 65535, "maxLength": 15}
    ),
]  # fmt: skip
Cidr = Annotated[
    str,
    Field(
        max_length=43, pattern=r"^([0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*/[0-9]{1,3})$"
    ),
]


class LabelSelectorRequirement(Base):
    """One condition on a label."""

    model_config = config(
        rule(
            "self.operator in ['In', 'NotIn'] ? (has(self.values) && size(self.values) > 0) "
            ": (!has(self.values) || size(self.values) == 0)",
            "In and NotIn need values; Exists and DoesNotExist take none",
        )
    )

    key: Annotated[str, Field(min_length=1, max_length=317)]
    """Name of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How it is compared with the values."""
    values: Annotated[list[LabelValue], Field(max_length=64)] | None = None
    """Values of the label, for In and NotIn."""


class LabelSelector(Base):
    """Selects objects by their labels; without any condition it selects all."""

    match_labels: Annotated[dict[str, LabelValue], Field(max_length=32)] | None = None
    """Labels that must all be there, with these values."""
    match_expressions: Annotated[list[LabelSelectorRequirement], Field(max_length=32)] | None = None
    """Conditions that must all be true."""


class IPBlock(Base):
    """A range of addresses."""

    cidr: Cidr
    """The range, e.g. 10.0.0.0/8 or 2001:db8::/32."""
    except_: Annotated[Annotated[list[Cidr], Field(max_length=64)] | None, Field(alias="except")] = None
    """Ranges within it that don't belong to it."""


class NetworkPolicyPeer(Base):
    """Pods, or addresses, at the other end of a connection."""

    model_config = config(
        rule(
            "has(self.ipBlock) ? (!has(self.podSelector) && !has(self.namespaceSelector)) "
            ": (has(self.podSelector) || has(self.namespaceSelector))",
            "a peer is either an ipBlock, or pods by podSelector, namespaceSelector or both; "
            "namespaceSelector: {} means the pods of all namespaces",
        )
    )

    pod_selector: LabelSelector | None = None
    """Pods: of the TritonModel's namespace, or of those that namespaceSelector selects."""
    namespace_selector: LabelSelector | None = None
    """Namespaces by their labels; each has the label kubernetes.io/metadata.name."""
    ip_block: IPBlock | None = None
    """Addresses outside the cluster."""


class NetworkPolicyPort(Base):
    """A port, or a range of ports."""

    model_config = config(
        rule(
            "!has(self.endPort) || (has(self.port) && type(self.port) == int && self.port <= self.endPort)",
            "endPort needs a port that is a number and not above it",
        )
    )

    port: PortNumberOrName | None = None
    """Number of the port, or its name in the pods. Default: every port."""
    end_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Last port of a range that begins with port."""
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    """Protocol of the port."""


class NetworkPolicyEgressRule(Base):
    """Where the servers may connect to."""

    to: Annotated[list[NetworkPolicyPeer], Field(max_length=64)] | None = None
    """Other ends. Default: anything."""
    ports: Annotated[list[NetworkPolicyPort], Field(max_length=64)] | None = None
    """Ports there. Default: every port."""


class NetworkPolicy(Base):
    """Who may connect to the servers, and where these may connect to: a networking.k8s.io/v1 NetworkPolicy is made from
    it, which takes a network plugin that enforces it. The operator may always ask which models are loaded."""

    clients: Annotated[list[NetworkPolicyPeer], Field(max_length=64)] | None = None
    """Who may send requests, over HTTP and gRPC. Default: the pods of the same namespace. An empty list: nobody."""
    monitoring: Annotated[list[NetworkPolicyPeer], Field(max_length=64)] | None = None
    """Who may read metrics. Default: the pods of all namespaces. An empty list: nobody."""
    egress: Annotated[list[NetworkPolicyEgressRule], Field(max_length=64)] = []
    """Where the servers may connect to. Default: nowhere; Triton needs nothing, and images are pulled by the node. For
    names instead of addresses allow port 53 as well."""
