"""The NetworkPolicy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.network import NetworkPolicyPeer
from triton_operator.api.types import TritonModel

from . import exporters
from .child_type import Child
from .common import obj
from .facts import Facts

_SAME_NAMESPACE: list[dict[str, Any]] = [{"podSelector": {}}]
_ANY_NAMESPACE: list[dict[str, Any]] = [{"namespaceSelector": {}}]
_PORTS = {
    **names.PORTS,
    names.ANSWERS: names.ANSWERS_PORT,
    **{exporter.port_name: exporter.port for exporter in exporters.EXPORTERS},
}


def network_policies(model: TritonModel, facts: Facts) -> list[dict[str, Any]]:
    """Returns a NetworkPolicy if the spec has one.

    It has no rule for the kubelet's probes, because every network plugin allows connections from the node. A rule
    without peers would allow every client, so empty lists of peers add no rule.
    """
    policy = model.spec.network_policy
    if policy is None:
        return []
    operator = {
        "namespaceSelector": {"matchLabels": {names.LABEL_NAMESPACE: facts.settings.operator_namespace}},
        "podSelector": {"matchLabels": {names.LABEL_NAME: names.FIELD_MANAGER}},
    }
    own = {"podSelector": {"matchLabels": names.selector(model.name)}}
    # The Gateway sends copies to the container that compares answers, and this sends them to the servers.
    answers = [names.ANSWERS] if model.compares else []
    exported = exporters.of(model)
    scraped = ["metrics", *(exporter.port_name for exporter in exported)]
    read = [*answers, *(exporter.port_name for exporter in exported if exporter.read_by_operator)]
    ingress = [
        (_peers(policy.clients, _SAME_NAMESPACE), ["http", "grpc", *answers]),
        (_peers(policy.monitoring, _ANY_NAMESPACE), scraped),
        ([operator], [*operator_ports(model), *read]),
        *(([own], ["http"]) for _ in answers),
    ]
    spec = {
        **own,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": peers, "ports": _ports(port_names)} for peers, port_names in ingress if peers],
        "egress": [
            *(_written(rule) for rule in policy.egress),
            *({"to": [own], "ports": _ports(["http"])} for _ in answers),
        ],
    }
    return [obj(model, kinds.NETWORK_POLICY, spec=spec)]


def operator_ports(model: TritonModel) -> list[str]:
    """Returns the names of the ports to which the operator connects.

    It reads the repository index, loads models, and reads how long that took, and the counters for an engine that
    needs them.
    """
    return ["http", *(["grpc"] if model.is_explicit else []), "metrics"]


def _peers(peers: Sequence[NetworkPolicyPeer] | None, default: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return default if peers is None else [_written(peer) for peer in peers]


def _ports(port_names: list[str]) -> list[dict[str, Any]]:
    """Returns ports by number, because podTemplate can change the names of a pod's ports."""
    return [{"protocol": "TCP", "port": _PORTS[name]} for name in port_names]


def _written(part: Any) -> dict[str, Any]:
    """Returns only the fields that the user set. In a NetworkPolicy, {} selects everything and null selects nothing."""
    out: dict[str, Any] = part.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)
    return out


CHILD = Child(kinds.NETWORK_POLICY, network_policies)
