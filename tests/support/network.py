"""Evaluates NetworkPolicies as the API's documentation defines them. The test cluster's network plugin doesn't enforce
them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .api import Object

NODE = "the node that the pod is on"


@dataclass(frozen=True)
class Pod:
    """A pod. `ports` maps port names to numbers, for policies with named ports."""

    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Network:
    """The policies of a cluster, and the labels of its namespaces. The label with the name is implicit."""

    policies: tuple[Object, ...]
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def lets(self, source: Pod | str, target: Pod | str, port: int, protocol: str = "TCP") -> bool:
        """Returns whether the policies allow a connection. A string is an address, or NODE."""
        if NODE in (source, target):
            return True  # traffic between a node and its pods is always allowed
        connection = (port, protocol)
        return self._one_way(source, "Egress", target, connection, target) and self._one_way(
            target, "Ingress", source, connection, target
        )

    def _one_way(
        self, pod: Pod | str, way: str, other: Pod | str, connection: tuple[int, str], target: Pod | str
    ) -> bool:
        """Returns whether a policy that isolates `pod` allows the connection, or no policy isolates it."""
        if isinstance(pod, str):
            return True
        policies = [p for p in self.policies if way in _types(p) and _picks(p, pod)]
        rules = [(p, r) for p in policies for r in p["spec"].get(way.lower()) or []]
        return not policies or any(self._matches(p, r, way, other, connection, target) for p, r in rules)

    def _matches(
        self, policy: Object, rule: Object, way: str, other: Pod | str, connection: tuple[int, str], target: Pod | str
    ) -> bool:
        peers = rule.get("from" if way == "Ingress" else "to") or []
        ports = rule.get("ports") or []
        # An empty list means all peers or all ports.
        return (not peers or any(self._is(p, other, policy["metadata"]["namespace"]) for p in peers)) and (
            not ports or any(_is_port(p, connection, target) for p in ports)
        )

    def _is(self, peer: Object, other: Pod | str, home: str) -> bool:
        if "ipBlock" in peer:
            return isinstance(other, str) and _within(peer["ipBlock"], other)
        if isinstance(other, str):
            return False
        if "namespaceSelector" in peer:
            labels = {"kubernetes.io/metadata.name": other.namespace, **self.labels.get(other.namespace, {})}
            near = selects(peer["namespaceSelector"], labels)
        else:
            near = other.namespace == home
        return near and selects(peer.get("podSelector", {}), other.labels)


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """Returns whether a label selector matches the labels. An empty selector matches everything."""
    if any(labels.get(k) != v for k, v in selector.get("matchLabels", {}).items()):
        return False
    return all(_expression(e, labels) for e in selector.get("matchExpressions", []))


def _expression(rule: Object, labels: Mapping[str, str]) -> bool:
    exists = rule["key"] in labels
    value = labels.get(rule["key"])
    return {
        "In": exists and value in rule.get("values", []),
        "NotIn": value not in rule.get("values", []),
        "Exists": exists,
        "DoesNotExist": not exists,
    }[rule["operator"]]


def _types(policy: Object) -> Iterable[str]:
    spec = policy["spec"]
    return spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def _picks(policy: Object, pod: Pod) -> bool:
    return policy["metadata"]["namespace"] == pod.namespace and selects(policy["spec"]["podSelector"], pod.labels)


def _within(block: Object, address: str) -> bool:
    ip = ipaddress.ip_address(address)
    return ip in ipaddress.ip_network(block["cidr"]) and not any(
        ip in ipaddress.ip_network(part) for part in block.get("except", [])
    )


def _is_port(rule: Object, connection: tuple[int, str], target: Pod | str) -> bool:
    port, protocol = connection
    if rule.get("protocol", "TCP") != protocol:
        return False
    if "port" not in rule:
        return True
    start = rule["port"]
    if isinstance(start, str):
        return isinstance(target, Pod) and target.ports.get(start) == port
    return bool(start <= port <= rule.get("endPort", start))
