"""What the operator may do, made from the table of kinds: no watch without its rule, no rule without its use."""

from __future__ import annotations

from typing import Any

from . import kinds, names, policies

Rule = dict[str, Any]

_API_VERSION = "rbac.authorization.k8s.io/v1"
_READ = ["get", "list", "watch"]
_CHILD_VERBS = [*_READ, "create", "patch", "delete"]


def cluster_rules() -> list[Rule]:
    """Rules for the namespaces that are served, as the ClusterRole (or a Role in each of them) has them."""
    by_group: dict[str, list[str]] = {}
    for kind in kinds.CHILDREN:
        by_group.setdefault(kind.group, []).append(kind.plural)
    return [
        _rule(names.GROUP, [names.PLURAL], [*_READ, policies.EDIT_GENERATED]),
        _rule(names.GROUP, [f"{names.PLURAL}/status"], ["patch"]),
        # Owner references with blockOwnerDeletion need it where that admission plugin is on.
        _rule(names.GROUP, [f"{names.PLURAL}/finalizers"], ["update"]),
        *(_rule(group, plurals, _CHILD_VERBS) for group, plurals in by_group.items()),
        _rule(kinds.POD.group, [kinds.POD.plural], ["get", "list", "watch"]),
        _rule("events.k8s.io", ["events"], ["create"]),
    ]


def node_rules() -> list[Rule]:
    """What is read of the cluster as a whole. Which container runtimes the nodes have decides whether images can be
    mounted; it is read once at start."""
    return [
        _rule("", ["nodes"], ["list"]),
        # Which Prometheus picks up the rules of a namespace: told in MonitoringAvailable, and asked for thresholds.
        _rule("", ["namespaces"], ["list"]),
        _rule("monitoring.coreos.com", ["prometheuses"], ["list"]),
    ]


def lease_rules() -> list[Rule]:
    """Rules in the operator's own namespace."""
    return [
        _rule("coordination.k8s.io", ["leases"], ["create"]),
        _rule("coordination.k8s.io", ["leases"], ["get", "update"]) | {"resourceNames": [names.FIELD_MANAGER]},
    ]


def manifests(namespace: str = names.FIELD_MANAGER) -> list[dict[str, Any]]:
    """The roles and their bindings to the ServiceAccount triton-operator of `namespace`."""
    name = names.FIELD_MANAGER
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}

    def pair(kind: str, rules: list[Rule], scope: dict[str, str]) -> list[dict[str, Any]]:
        return [
            {"apiVersion": _API_VERSION, "kind": kind, "metadata": {"name": name, **scope}, "rules": rules},
            {
                "apiVersion": _API_VERSION,
                "kind": f"{kind}Binding",
                "metadata": {"name": name, **scope},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
                "subjects": [subject],
            },
        ]

    return pair("ClusterRole", cluster_rules() + node_rules(), {}) + pair(
        "Role", lease_rules(), {"namespace": namespace}
    )


def roles() -> list[dict[str, Any]]:
    """The roles for people. Verbs are named one by one: `*` would hold the operator's own. What view and edit take up,
    admin has as well; SET_THRESHOLDS is in none of them, so that only a binding gives it."""
    group, models = names.GROUP, names.PLURAL
    read = [_rule(group, [models, f"{models}/status"], _READ)]
    write = ["create", "update", "patch", "delete", "deletecollection"]
    return [
        _role("tritonmodel-viewer", read, into="view"),
        _role(
            "tritonmodel-developer",
            [*read, _rule(group, [models], write), _rule(group, [f"{models}/scale"], ["get", "update", "patch"])],
            into="edit",
        ),
        # Without update the policy lets nothing else be changed.
        _role("tritonmodel-oncall", [*read, _rule(group, [models], ["patch", policies.SET_THRESHOLDS])]),
    ]


def _role(name: str, rules: list[Rule], into: str = "") -> dict[str, Any]:
    """A ClusterRole; what it allows is added to the built-in role `into`."""
    labels = {"labels": {f"rbac.authorization.k8s.io/aggregate-to-{into}": "true"}} if into else {}
    return {"apiVersion": _API_VERSION, "kind": "ClusterRole", "metadata": {"name": name, **labels}, "rules": rules}


def _rule(group: str, resources: list[str], verbs: list[str]) -> Rule:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}
