"""The table of child kinds.

A new kind needs a file in this folder with its `CHILD`, a line here, and a grant in manifests/rbac.py. The kinds that
scale servers are those of the engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_operator.api.kinds import Kind

from . import (
    deployment,
    disruption_budget,
    envoy_gateway,
    model_lists,
    network_policy,
    pod_monitor,
    prometheus_rule,
    routes,
    scalers,
    service,
    service_account,
)
from .child_type import Child

CHILDREN: tuple[Child, ...] = (
    service_account.CHILD,
    # Before the Deployment, so that no server runs without them.
    network_policy.CHILD,
    model_lists.CHILD,
    deployment.CHILD,
    # After the Deployment, so that none selects the pods of another user's with this name.
    service.CHILD,
    disruption_budget.CHILD,
    pod_monitor.CHILD,
    prometheus_rule.CHILD,
    *scalers.CHILDREN,
    # Before the routes, so that no request gets other limits.
    envoy_gateway.CHILD,
    *routes.CHILDREN,
)
"""In the order in which the operator applies them."""

KINDS: tuple[Kind, ...] = tuple(child.kind for child in CHILDREN)
PLURALS: Mapping[str, tuple[str, ...]] = {
    group: tuple(kind.plural for kind in KINDS if kind.group == group)
    for group in dict.fromkeys(k.group for k in KINDS)
}
"""The names of the resources by their API group."""
CONDITIONAL: frozenset[Kind] = frozenset(child.kind for child in CHILDREN if not child.always)
"""Kinds that not every TritonModel has."""
BY_NAME: Mapping[str, Child] = {child.kind.kind: child for child in CHILDREN}
"""By the name of the kind."""
_BY_KIND = {(child.kind.api_version, child.kind.kind): child for child in CHILDREN}


def of(obj: Mapping[str, Any]) -> Child:
    """Returns the descriptor of a child object's kind. Raises KeyError for other kinds."""
    return _BY_KIND[(str(obj["apiVersion"]), str(obj["kind"]))]
