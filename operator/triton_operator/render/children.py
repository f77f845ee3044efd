"""The table of child kinds.

A new kind needs a file in this folder with its `CHILD`, a line here, and a grant in manifests/rbac.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton_operator.api.kinds import Kind

from . import (
    autoscaler,
    deployment,
    disruption_budget,
    network_policy,
    pod_monitor,
    prometheus_rule,
    scaled_object,
    service,
    service_account,
)
from .child import Child

CHILDREN: tuple[Child, ...] = (
    service_account.CHILD,
    service.CHILD,
    # Before the Deployment, so that no server runs without it.
    network_policy.CHILD,
    deployment.CHILD,
    disruption_budget.CHILD,
    pod_monitor.CHILD,
    prometheus_rule.CHILD,
    autoscaler.CHILD,
    scaled_object.CHILD,
)
"""In the order in which the operator applies them."""

KINDS: tuple[Kind, ...] = tuple(child.kind for child in CHILDREN)
CONDITIONAL: frozenset[Kind] = frozenset(child.kind for child in CHILDREN if not child.always)
"""Kinds that not every TritonModel has."""
BY_NAME: Mapping[str, Child] = {child.kind.kind: child for child in CHILDREN}
"""By the name of the kind."""
_BY_KIND = {(child.kind.api_version, child.kind.kind): child for child in CHILDREN}


def of(obj: Mapping[str, Any]) -> Child:
    """Returns the descriptor of a child object's kind. Raises KeyError for other kinds."""
    return _BY_KIND[(str(obj["apiVersion"]), str(obj["kind"]))]
