"""The API server's type check of the policies."""

from __future__ import annotations

import pytest

from support import controlplane
from support.api import Object, eventually
from support.people import Team

pytestmark = pytest.mark.integration


def test_type_check_of_the_policies_has_no_warnings(team: Team) -> None:
    if not controlplane.has_controllers():
        pytest.skip("kube-controller-manager, which checks the types, is not installed")
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def checked() -> list[Object] | None:
        policies: list[Object] = team.api().request("GET", path)["items"]
        return policies if all("status" in p for p in policies) else None

    for policy in eventually(checked, 20, "the type check is complete"):
        assert not policy["status"].get("typeChecking", {}).get("expressionWarnings"), policy["status"]
