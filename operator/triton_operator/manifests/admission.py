"""Builds ValidatingAdmissionPolicies and CEL literals."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Object = dict[str, Any]

API_VERSION = "admissionregistration.k8s.io/v1"

CONTROLLERS = (
    "'system:serviceaccounts:kube-system' in request.userInfo.?groups.orValue([]) ||\n"
    "request.userInfo.username in ['system:kube-controller-manager', 'system:cloud-controller-manager']"
)
"""CEL: whether the request comes from a controller of Kubernetes, such as the garbage collector or the controllers of
namespaces, Deployments and ReplicaSets."""


def policy(
    name: str,
    *,
    rules: list[Object],
    validations: list[Object],
    variables: dict[str, str] | None = None,
    selector: dict[str, str] | None = None,
    conditions: dict[str, str] | None = None,
    audit: dict[str, str] | None = None,
    params: tuple[str, str] | None = None,
) -> Object:
    """Returns a policy. It refuses requests for which an expression fails to evaluate.

    `params`: apiVersion and kind of its parameters.
    """
    constraints: Object = {"resourceRules": rules}
    if selector:
        constraints["objectSelector"] = {"matchLabels": selector}
    spec: Object = {"failurePolicy": "Fail", "matchConstraints": constraints}
    if params:
        spec["paramKind"] = {"apiVersion": params[0], "kind": params[1]}
    if conditions:
        spec["matchConditions"] = [{"name": n, "expression": e} for n, e in conditions.items()]
    if variables:
        spec["variables"] = [{"name": n, "expression": e} for n, e in variables.items()]
    spec["validations"] = validations
    if audit:
        spec["auditAnnotations"] = [{"key": k, "valueExpression": e} for k, e in audit.items()]
    return {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def bound(policy: Object, *actions: str, params: bool = False) -> list[Object]:
    """Returns the policy and its cluster-wide binding.

    `params`: the policy is evaluated for each of its parameters in the namespace of the request.
    """
    name = policy["metadata"]["name"]
    every = {"paramRef": {"selector": {}, "parameterNotFoundAction": "Deny"}} if params else {}
    binding = {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": list(actions), **every},
    }
    return [policy, binding]


def rule(group: str, resources: list[str], *operations: str) -> Object:
    """Returns a rule that matches requests for these resources."""
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": list(operations),
        "resources": resources,
        "scope": "Namespaced",
    }


def cel_text(value: str) -> str:
    """Returns a CEL string literal."""
    return "'" + json.dumps(value, ensure_ascii=False)[1:-1].replace("'", "\\'").replace('\\"', '"') + "'"


def cel_list(values: Iterable[str]) -> str:
    """Returns a CEL list of strings."""
    return "[" + ", ".join(cel_text(v) for v in values) + "]"


def cel_map(values: dict[str, str]) -> str:
    """Returns a CEL map whose values are expressions."""
    return "{" + ", ".join(f"{cel_text(k)}: {v}" for k, v in values.items()) + "}"
