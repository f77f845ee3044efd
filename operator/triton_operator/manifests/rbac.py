"""The operator's permissions, generated from the table of child kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from triton_operator import engines
from triton_operator.api import kinds, names
from triton_operator.engines import Engine
from triton_operator.render.children import PLURALS

Rule = dict[str, Any]

SET_THRESHOLDS = "setthresholds"
"""The verb on tritonmodels that allows setting thresholds. The policies in manifests/policies ask for it."""
EDIT_GENERATED = "editgenerated"
"""The verb on tritonmodels that allows writing generated objects."""
_API_VERSION = "rbac.authorization.k8s.io/v1"
_READ = ("get", "list", "watch")


@dataclass(frozen=True)
class Grant:
    """Verbs on resources, and their purpose. `only`: names of the objects that the grant is limited to, or empty."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str
    only: tuple[str, ...] = ()

    @property
    def rule(self) -> Rule:
        """Returns the grant as a rule of a Role."""
        objects = {"resourceNames": list(self.only)} if self.only else {}
        return _rule(self.group, list(self.resources), list(self.verbs)) | objects


def _names(which: Callable[[Engine], bool]) -> str:
    return " or ".join(engine.name for engine in engines.ENGINES if which(engine))


def grants() -> list[Grant]:
    """Returns the permissions in the served namespaces, for a ClusterRole or for one Role in each."""
    models = names.PLURAL
    return [
        Grant(names.GROUP, (models,), _READ, "List and watch TritonModels, and check a uid before deleting leftovers."),
        Grant(
            names.GROUP,
            (models,),
            (EDIT_GENERATED,),
            "Pass the policy that protects generated objects.",
        ),
        Grant(names.GROUP, (f"{models}/status",), ("patch",), "Write the status, by server-side apply."),
        Grant(
            names.GROUP,
            (f"{models}/finalizers",),
            ("update",),
            "Set blockOwnerDeletion where the plugin OwnerReferencesPermissionEnforcement is enabled.",
        ),
        *(Grant(group, plurals, _READ, "Watch the children, and detect name conflicts with other objects.")
          for group, plurals in PLURALS.items()),
        *(Grant(group, plurals, ("create", "patch"), "Create children and correct drift, by server-side apply.")
          for group, plurals in PLURALS.items()),
        *(Grant(group, plurals, ("delete",), "Delete unneeded children, and leftovers of deleted TritonModels, by uid.")
          for group, plurals in PLURALS.items()),
        Grant(kinds.POD.group, (kinds.POD.plural,), ("list", "watch"), "Read the servers' state and addresses."),
        Grant(kinds.POD.group, (kinds.POD.plural,), ("delete",), "Delete servers whose ReplicaSet is gone, by uid."),
        Grant(
            kinds.POD.group,
            (f"{kinds.POD.plural}/eviction",),
            ("create",),
            "Replace a server that has stopped answering `spec.healthRequest`.",
        ),
        Grant(
            kinds.REPLICA_SET.group,
            (kinds.REPLICA_SET.plural,),
            ("get", "list", "delete"),
            "Delete ReplicaSets of deleted Deployments that Kubernetes' garbage collector has missed, by uid.",
        ),
        Grant(
            kinds.DEPLOYMENT.group,
            (f"{kinds.DEPLOYMENT.plural}/scale",),
            ("patch",),
            f"Add servers, with `autoscaling.engine: {_names(lambda engine: engine.counts is not None)}`, or when "
            f"another engine or minimum follows {_names(lambda engine: engine.to_zero)} at zero servers.",
        ),
        Grant("events.k8s.io", ("events",), ("create",), "Post Events about TritonModels."),
    ]  # fmt: skip


def cluster_grants() -> list[Grant]:
    """Returns the cluster-wide read permissions. Without one, only the named feature is missing."""
    return [
        Grant("", ("nodes",), ("list",), "Detect the container runtimes, for a new Deployment with `delivery: Auto`."),
        Grant("", ("namespaces",), ("list",), "Evaluate the namespace selectors of Prometheus resources."),
        Grant(
            "monitoring.coreos.com",
            ("prometheuses",),
            ("list",),
            "Find the Prometheus that selects the rules, for MonitoringAvailable and ThresholdLive.",
        ),
    ]


def own_grants() -> list[Grant]:
    """Returns the permissions in the operator's namespace."""
    leases = ("coordination.k8s.io", ("leases",))
    return [
        Grant(*leases, ("create",), "Create the Lease for leader election; RBAC can't limit `create` by name."),
        Grant(*leases, ("get", "update"), "Take and renew this Lease.", (names.FIELD_MANAGER,)),
    ]


def manifests(namespace: str = names.FIELD_MANAGER) -> list[dict[str, Any]]:
    """Returns the roles and their bindings to the ServiceAccount triton-operator of `namespace`."""
    return _pair("ClusterRole", grants() + cluster_grants(), namespace) + _pair("Role", own_grants(), namespace)


def namespaced(namespace: str = names.FIELD_MANAGER) -> list[dict[str, Any]]:
    """Returns the role and the binding of an operator that serves only its own namespace."""
    return _pair("Role", grants() + own_grants(), namespace)


def _pair(kind: str, granted: list[Grant], namespace: str) -> list[dict[str, Any]]:
    """Returns a role and its binding to the operator's ServiceAccount."""
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
    """Merges the grants for the same objects into one rule."""
    by_objects: dict[tuple[Any, ...], Grant] = {}
    for grant in granted:
        key = (grant.group, grant.resources, grant.only)
        before = by_objects.get(key)
        by_objects[key] = replace(before, verbs=(*before.verbs, *grant.verbs)) if before else grant
    return list(by_objects.values())


def roles() -> list[dict[str, Any]]:
    """Returns the roles for users.

    The roles list each verb, because `*` would include the operator's own verbs. Kubernetes aggregates view and edit
    into admin too. No aggregated role has SET_THRESHOLDS, so only a binding grants it.
    """
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
        # Without `update`, the admission policy allows changes of thresholds only.
        _role("tritonmodel-oncall", [*read, _rule(group, [models], ["patch", SET_THRESHOLDS])]),
        # For `kubectl triton models`, `config`, `load`, `unload` and `reload`. Not a part of the developer's role,
        # because port-forward reaches every port of every pod in the namespace. Depending on its version, kubectl
        # opens the connection with `get` or `create`.
        _role(
            "tritonmodel-modelcontrol",
            [
                *read,
                _rule("", ["pods"], ["get", "list"]),
                _rule("", ["pods/portforward"], ["get", "create"]),
            ],
        ),
    ]


def _role(name: str, rules: list[Rule], into: str = "") -> dict[str, Any]:
    """Returns a ClusterRole that is aggregated into the built-in role `into`."""
    labels = {"labels": {f"rbac.authorization.k8s.io/aggregate-to-{into}": "true"}} if into else {}
    return {"apiVersion": _API_VERSION, "kind": "ClusterRole", "metadata": {"name": name, **labels}, "rules": rules}


def _rule(group: str, resources: list[str], verbs: list[str]) -> Rule:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}
