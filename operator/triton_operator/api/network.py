"""The network policy of a TritonModel, with the fields of networking.k8s.io/v1."""

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
    """One requirement of a label selector."""

    model_config = config(
        rule(
            "self.operator in ['In', 'NotIn'] ? (has(self.values) && size(self.values) > 0) "
            ": (!has(self.values) || size(self.values) == 0)",
            "the operators In and NotIn need values; remove values from Exists and DoesNotExist",
        )
    )

    key: Annotated[str, Field(min_length=1, max_length=317)]
    """Name of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label is compared with the values."""
    values: Annotated[list[LabelValue], Field(max_length=64)] | None = None
    """Values of the label, for In and NotIn."""


class LabelSelector(Base):
    """Selects objects by their labels. An empty selector selects all objects."""

    match_labels: Annotated[dict[str, LabelValue], Field(max_length=32)] | None = None
    """Labels that objects must have, with these values."""
    match_expressions: Annotated[list[LabelSelectorRequirement], Field(max_length=32)] | None = None
    """Requirements that objects must meet."""


class IPBlock(Base):
    """A range of IP addresses."""

    cidr: Cidr
    """The range, e.g. 10.0.0.0/8 or 2001:db8::/32."""
    except_: Annotated[Annotated[list[Cidr], Field(max_length=64)] | None, Field(alias="except")] = None
    """Ranges within cidr that are excluded."""


class NetworkPolicyPeer(Base):
    """The other end of a connection: pods, or IP addresses."""

    model_config = config(
        rule(
            "has(self.ipBlock) ? (!has(self.podSelector) && !has(self.namespaceSelector)) "
            ": (has(self.podSelector) || has(self.namespaceSelector))",
            "a peer must have either ipBlock, or podSelector, namespaceSelector or both; "
            "use namespaceSelector: {} for the pods of all namespaces",
        )
    )

    pod_selector: LabelSelector | None = None
    """Selects pods in the TritonModel's namespace, or in the namespaces that namespaceSelector selects."""
    namespace_selector: LabelSelector | None = None
    """Selects namespaces by their labels. Every namespace has the label kubernetes.io/metadata.name."""
    ip_block: IPBlock | None = None
    """A range of IP addresses outside the cluster."""


class NetworkPolicyPort(Base):
    """A port, or a range of ports."""

    model_config = config(
        rule(
            "!has(self.endPort) || (has(self.port) && type(self.port) == int && self.port <= self.endPort)",
            "endPort needs port to be a number that is at most endPort",
        )
    )

    port: PortNumberOrName | None = None
    """Number of the port, or its name in the pods. Default: every port."""
    end_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Last port of a range that begins with port."""
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    """Protocol of the port."""


class NetworkPolicyEgressRule(Base):
    """Connections that the servers may open."""

    to: Annotated[list[NetworkPolicyPeer], Field(max_length=64)] | None = None
    """Destinations. Default: all."""
    ports: Annotated[list[NetworkPolicyPort], Field(max_length=64)] | None = None
    """Ports of the destinations. Default: all."""


class NetworkPolicy(Base):
    """Which clients may connect to the servers, and where the servers may connect to.

    The operator creates a networking.k8s.io/v1 NetworkPolicy; the cluster needs a network plugin that enforces it. The
    operator itself may always read the list of loaded models.
    """

    clients: Annotated[list[NetworkPolicyPeer], Field(max_length=64)] | None = None
    """Clients that may send requests, over HTTP and gRPC. Default: pods of the same namespace. Empty list: none."""
    monitoring: Annotated[list[NetworkPolicyPeer], Field(max_length=64)] | None = None
    """Clients that may read metrics. Default: pods of all namespaces. Empty list: none."""
    egress: Annotated[list[NetworkPolicyEgressRule], Field(max_length=64)] = []
    """Connections that the servers may open. Default: none. Triton needs none, and the node pulls the images. To use
    host names, allow port 53 too."""
