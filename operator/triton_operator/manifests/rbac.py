"""What the operator may do, made from the table of kinds: no watch without its rule, no rule without its use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from triton_operator.api import kinds, names
from triton_operator.render.children import KINDS

from . import policies

Rule = dict[str, Any]

_API_VERSION = "rbac.authorization.k8s.io/v1"
_READ = ("get", "list", "watch")


@dataclass(frozen=True)
class Grant:
    """Verbs on resources, and what they are for. `only`: the names of the objects, where not all are meant."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    only: tuple[str, ...] = ()

    @property
    def rule(self) -> Rule:
        """As a Role has it."""
        named = {"resourceNames": list(self.only)} if self.only else {}
        return _rule(self.group, list(self.resources), list(self.verbs)) | named


def grants() -> list[Grant]:
    """What is needed in the namespaces that are served, by a ClusterRole or by a Role in each of them."""
    by_group: dict[str, tuple[str, ...]] = {}
    for kind in KINDS:
        by_group[kind.group] = (*by_group.get(kind.group, ()), kind.plural)
    models = names.PLURAL
    return [
        Grant(names.GROUP, (models,), _READ, "What is wanted: listed, watched, and read where its uid is in doubt."),
        Grant(
            names.GROUP,
            (models,),
            (policies.EDIT_GENERATED,),
            "Lets the operator through the policy that guards what it makes.",
        ),
        Grant(names.GROUP, (f"{models}/status",), ("patch",), "What is true of it: status, by server-side apply."),
        Grant(
            names.GROUP,
            (f"{models}/finalizers",),
            ("update",),
            "Owner references with blockOwnerDeletion, where the plugin OwnerReferencesPermissionEnforcement is on.",
        ),
        *(Grant(group, plurals, _READ, "To see its own objects, by label or without, and whose a taken name is.")
          for group, plurals in by_group.items()),
        *(Grant(group, plurals, ("create", "patch"), "Makes and repairs them, by server-side apply.")
          for group, plurals in by_group.items()),
        *(Grant(group, plurals, ("delete",), "What is no longer wanted, or left by former TritonModels, by its uid.")
          for group, plurals in by_group.items()),
        Grant(kinds.POD.group, (kinds.POD.plural,), ("list", "watch"), "How the servers are, and their addresses."),
        Grant(kinds.POD.group, (kinds.POD.plural,), ("delete",), "Servers whose ReplicaSet is gone, by their uid."),
        Grant(
            kinds.REPLICA_SET.group,
            (kinds.REPLICA_SET.plural,),
            ("get", "list", "delete"),
            "Those of Deployments that are gone, by their uid, where Kubernetes' collector has missed their end.",
        ),
        Grant("events.k8s.io", ("events",), ("create",), "Says what happened to a TritonModel."),
    ]  # fmt: skip


def cluster_grants() -> list[Grant]:
    """What is read of the cluster as a whole. Without it everything works but what the reason names."""
    return [
        Grant("", ("nodes",), ("list",), "Which container runtimes there are, once at start, for `delivery: Auto`."),
        Grant("", ("namespaces",), ("list",), "Labels by which a Prometheus selects namespaces."),
        Grant(
            "monitoring.coreos.com",
            ("prometheuses",),
            ("list",),
            "Which Prometheus picks the rules up: told in MonitoringAvailable, and asked for thresholds.",
        ),
    ]


def own_grants() -> list[Grant]:
    """What is needed in the operator's own namespace."""
    leases = ("coordination.k8s.io", ("leases",))
    return [
        Grant(*leases, ("create",), "The Lease by which one replica works; `create` can't be given by name."),
        Grant(*leases, ("get", "update"), "To hold it, and no other.", (names.FIELD_MANAGER,)),
    ]


def manifests(namespace: str = names.FIELD_MANAGER) -> list[dict[str, Any]]:
    """The roles and their bindings to the ServiceAccount triton-operator of `namespace`."""
    return _pair("ClusterRole", grants() + cluster_grants(), namespace) + _pair("Role", own_grants(), namespace)


def namespaced(namespace: str = names.FIELD_MANAGER) -> list[dict[str, Any]]:
    """The role of an operator that serves its own namespace only."""
    return _pair("Role", grants() + own_grants(), namespace)


def _pair(kind: str, granted: list[Grant], namespace: str) -> list[dict[str, Any]]:
    """A role and its binding to the operator's ServiceAccount."""
    name = names.FIELD_MANAGER
    metadata = {"name": name} | ({"namespace": namespace} if kind == "Role" else {})
    return [
        {"apiVersion": _API_VERSION, "kind": kind, "metadata": metadata, "rules": [r.rule for r in _joined(granted)]},
        {
            "apiVersion": _API_VERSION,
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    ]


def _joined(granted: list[Grant]) -> list[Grant]:
    """One rule for all verbs on the same objects."""
    found: dict[tuple[Any, ...], Grant] = {}
    for grant in granted:
        key = (grant.group, grant.resources, grant.only)
        before = found.get(key)
        found[key] = replace(before, verbs=(*before.verbs, *grant.verbs)) if before else grant
    return list(found.values())


def roles() -> list[dict[str, Any]]:
    """The roles for people. Verbs are named one by one: `*` would hold the operator's own. What view and edit take up,
    admin has as well; SET_THRESHOLDS is in none of them, so that only a binding gives it."""
    group, models = names.GROUP, names.PLURAL
    read = [_rule(group, [models, f"{models}/status"], list(_READ))]
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
