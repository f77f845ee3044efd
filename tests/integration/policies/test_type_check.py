"""The API server's own opinion of the policies."""

from __future__ import annotations

import pytest

from support import controlplane
from support.api import Object, eventually
from support.people import Team

pytestmark = pytest.mark.integration


def test_the_api_server_finds_no_fault_with_the_policies(world: Team) -> None:
    if not controlplane.has_controllers():
        pytest.skip("no controller that checks types")
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def checked() -> list[Object] | None:
        found: list[Object] = world.api().request("GET", path)["items"]
        return found if all("status" in p for p in found) else None

    for policy in eventually(checked, 20, "the types checked"):
        assert not policy["status"].get("typeChecking", {}).get("expressionWarnings"), policy["status"]
