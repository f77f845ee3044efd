"""Who may connect to the servers, and where these may connect to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.api.network import NetworkPolicyPeer
from triton_operator.api.types import TritonModel

from .child import Child
from .choices import Choices
from .common import obj, selector

_SAME_NAMESPACE: list[dict[str, Any]] = [{"podSelector": {}}]
_ANY_NAMESPACE: list[dict[str, Any]] = [{"namespaceSelector": {}}]


def network_policies(model: TritonModel, choices: Choices) -> list[dict[str, Any]]:
    """A NetworkPolicy, where one is asked for. The kubelet's probes come from the node, which every network
    plugin lets in. A rule without peers would be one for everybody, so that it is left out."""
    wanted = model.spec.network_policy
    if wanted is None:
        return []
    operator = {
        "namespaceSelector": {"matchLabels": {names.LABEL_NAMESPACE: choices.operator_namespace}},
        "podSelector": {"matchLabels": {names.LABEL_NAME: names.FIELD_MANAGER}},
    }
    ingress = [
        (_peers(wanted.clients, _SAME_NAMESPACE), ["http", "grpc"]),
        (_peers(wanted.monitoring, _ANY_NAMESPACE), ["metrics"]),
        # It asks for the repository index.
        ([operator], ["http"]),
    ]
    spec = {
        "podSelector": {"matchLabels": selector(model, choices)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": peers, "ports": _ports(ports)} for peers, ports in ingress if peers],
        "egress": [_written(rule) for rule in wanted.egress],
    }
    return [obj(model, kinds.NETWORK_POLICY, spec=spec)]


def _peers(asked: Sequence[NetworkPolicyPeer] | None, default: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return default if asked is None else [_written(peer) for peer in asked]


def _ports(wanted: list[str]) -> list[dict[str, Any]]:
    """By number: a name would be looked up in the pods, which podTemplate may change."""
    return [{"protocol": "TCP", "port": names.PORTS[name]} for name in wanted]


def _written(part: Any) -> dict[str, Any]:
    """As the user wrote it: here an empty object means everything, and a missing one nothing."""
    out: dict[str, Any] = part.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)
    return out


CHILD = Child(kinds.NETWORK_POLICY, network_policies)
