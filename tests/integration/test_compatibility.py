"""What another version of Kubernetes could refuse: the estimated cost of the CRD's rules."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from support.api import Object
from support.controlplane import CRD, ControlPlane, documents
from support.people import refusal

pytestmark = pytest.mark.integration


def times(schema: Any, number: int) -> Any:
    """Multiplies the estimated cost of each rule in a schema, and returns the schema."""
    match schema:
        case dict():
            for rule in schema.get("x-kubernetes-validations", ()):
                rule["rule"] = " && ".join([f"({rule['rule']})"] * number)
                if "messageExpression" in rule:
                    rule["messageExpression"] = " + ".join([f"({rule['messageExpression']})"] * number)
            for value in schema.values():
                times(value, number)
        case list():
            for value in schema:
                times(value, number)
    return schema


def refused(plane: ControlPlane, crd: Object) -> str:
    path = plane.api.path("CustomResourceDefinition", crd["metadata"]["name"])
    query = "?dryRun=All&fieldManager=test&force=true"
    return refusal(lambda: plane.api.request("PATCH", path + query, crd, "application/apply-patch+yaml"))


def test_the_rules_of_the_crd_take_at_most_half_of_what_the_api_server_allows(control_plane: ControlPlane) -> None:
    (crd,) = copy.deepcopy(documents(CRD))
    assert not refused(control_plane, times(crd, 2))


def test_the_api_server_estimates_the_cost_of_rules(control_plane: ControlPlane) -> None:
    (crd,) = copy.deepcopy(documents(CRD))
    assert "estimated rule cost exceeds budget" in refused(control_plane, times(crd, 8))
