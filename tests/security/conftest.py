"""A real API server with the shipped roles and policies, and a namespace with users of each role for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import controlplane, operator_process
from support.api import eventually
from support.controlplane import ROOT, ControlPlane
from support.people import RBAC, Team, apply_folder, bind, dry_run, refusal, tritonmodel

AUDIT_POLICY = Path(__file__).parent / "audit.yaml"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    users = ["developer", "podmaker", "netadmin", "budgetadmin", "oncall", "statusmaker"]
    # Some clusters have these plugins. With the first one, clients need a permission on an owner to block its deletion.
    plugins = ["--enable-admission-plugins=OwnerReferencesPermissionEnforcement,AlwaysPullImages"]
    with controlplane.running(server_flags=plugins, audit=AUDIT_POLICY, users=users) as plane:
        plane.install_crds()
        plane.install_monitoring()
        plane.install_keda()
        operator_process.install(plane)
        for folder in ("rbac", "policies"):
            apply_folder(plane, ROOT / "manifests" / folder)
        for user, group, plural in (
            ("podmaker", "", "pods"),
            ("netadmin", "networking.k8s.io", "networkpolicies"),
            ("budgetadmin", "policy", "poddisruptionbudgets"),
        ):
            rules = [{"verbs": ["create"], "apiGroups": [group], "resources": [plural]}]
            role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules}
            plane.api.create(role)
        rules = [
            {"verbs": ["patch"], "apiGroups": ["apps"], "resources": ["deployments/status"]},
            {"verbs": ["patch"], "apiGroups": [""], "resources": ["pods/status", "services/status"]},
            {"verbs": ["create"], "apiGroups": [""], "resources": ["pods/binding", "bindings"]},
            {
                "verbs": ["patch"],
                "apiGroups": ["tritonoperator.io"],
                "resources": ["tritonmodels/status", "tritonmodels/scale"],
            },
        ]
        role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "statusmaker"}, "rules": rules}
        plane.api.create(role)
        yield plane


@pytest.fixture
def team(plane: ControlPlane) -> Team:
    """A namespace with users.

    - `developer` has only the role tritonmodel-developer.
    - `podmaker`, `netadmin` and `budgetadmin` may also create pods, NetworkPolicies and PodDisruptionBudgets.
    - `oncall` may set thresholds.
    - `statusmaker` may only write the status of Deployments, Services, pods and TritonModels, and bind pods.
    """
    team = Team(plane, f"team-{next(_numbers)}")
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team.namespace}})
    for user, role in (
        ("developer", "tritonmodel-developer"),
        ("podmaker", "tritonmodel-developer"),
        ("podmaker", "podmaker"),
        ("netadmin", "tritonmodel-developer"),
        ("netadmin", "netadmin"),
        ("budgetadmin", "tritonmodel-developer"),
        ("budgetadmin", "budgetadmin"),
        ("oncall", "tritonmodel-oncall"),
        ("statusmaker", "statusmaker"),
    ):
        bind(plane, team.namespace, user, "ClusterRole", role)
    probe = tritonmodel("probe", podTemplate={"spec": {"hostNetwork": True}})
    eventually(lambda: "pod-template" in refusal(lambda: dry_run(team.api("developer"), probe)), 60, "the policy")
    eventually(lambda: not refusal(lambda: dry_run(team.api("podmaker"), probe)), 60, "the roles in effect")
    isolated = tritonmodel("probe", networkPolicy={})
    eventually(lambda: not refusal(lambda: dry_run(team.api("netadmin"), isolated)), 60, "the roles in effect")
    blocking = tritonmodel("probe", disruption={"maxUnavailable": 0})
    eventually(lambda: refusal(lambda: dry_run(team.api("developer"), blocking)), 60, "the policy")
    eventually(lambda: not refusal(lambda: dry_run(team.api("budgetadmin"), blocking)), 60, "the roles in effect")
    eventually(lambda: not refusal(lambda: team.api("oncall").list("TritonModel")), 60, "the roles in effect")
    return team
