"""A real API server with the shipped roles and policies, and a namespace with users of each role for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from support import guarded
from support.api import eventually
from support.controlplane import ControlPlane
from support.people import Team, bind, dry_run, refusal, tritonmodel

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    # Some clusters have these plugins. With the first one, clients need a permission on an owner to block its deletion.
    with guarded.running("OwnerReferencesPermissionEnforcement", "AlwaysPullImages") as plane:
        yield plane


@pytest.fixture
def team(plane: ControlPlane) -> Team:
    """A namespace with users.

    - `developer` has only the role tritonmodel-developer.
    - `podmaker`, `netadmin`, `routeadmin` and `budgetadmin` may also create pods, NetworkPolicies, HTTPRoutes and
      PodDisruptionBudgets.
    - `childmaker` may also create pods, Services and ServiceAccounts.
    - `oncall` may set thresholds.
    - `statusmaker` may only write the status of Deployments, Services, pods and TritonModels, and bind pods.
    - `updater` may only read and change TritonModels.
    """
    team = Team(plane, f"team-{next(_numbers)}")
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team.namespace}})
    for user, role in (
        ("developer", "tritonmodel-developer"),
        ("podmaker", "tritonmodel-developer"),
        ("podmaker", "podmaker"),
        ("childmaker", "tritonmodel-developer"),
        ("childmaker", "childmaker"),
        ("netadmin", "tritonmodel-developer"),
        ("netadmin", "netadmin"),
        ("routeadmin", "tritonmodel-developer"),
        ("routeadmin", "routeadmin"),
        ("budgetadmin", "tritonmodel-developer"),
        ("budgetadmin", "budgetadmin"),
        ("oncall", "tritonmodel-oncall"),
        ("statusmaker", "statusmaker"),
        ("updater", "updater"),
    ):
        bind(plane, team.namespace, user, "ClusterRole", role)
    probe = tritonmodel("probe", podTemplate={"spec": {"hostNetwork": True}})
    eventually(lambda: "pod-template" in refusal(lambda: dry_run(team.api("developer"), probe)), 60, "the policy")
    eventually(lambda: not refusal(lambda: dry_run(team.api("podmaker"), probe)), 60, "the roles in effect")
    common = tritonmodel("probe", commonMetadata={"labels": {"a": "b"}})
    eventually(lambda: refusal(lambda: dry_run(team.api("developer"), common)), 60, "the policy")
    eventually(lambda: not refusal(lambda: dry_run(team.api("childmaker"), common)), 60, "the roles in effect")
    isolated = tritonmodel("probe", networkPolicy={})
    eventually(lambda: not refusal(lambda: dry_run(team.api("netadmin"), isolated)), 60, "the roles in effect")
    routed = tritonmodel("probe", route={"gateway": {"name": "a"}, "hostnames": ["a.example.com"]})
    eventually(lambda: not refusal(lambda: dry_run(team.api("routeadmin"), routed)), 60, "the roles in effect")
    blocking = tritonmodel("probe", disruption={"maxUnavailable": 0})
    eventually(lambda: refusal(lambda: dry_run(team.api("developer"), blocking)), 60, "the policy")
    eventually(lambda: not refusal(lambda: dry_run(team.api("budgetadmin"), blocking)), 60, "the roles in effect")
    eventually(lambda: not refusal(lambda: team.api("oncall").list("TritonModel")), 60, "the roles in effect")
    return team
