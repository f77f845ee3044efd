"""An API server with the shipped policies and roles, and users with only these roles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from integration.policies.objects import generated
from support import controlplane, operator_process
from support.api import Api, eventually
from support.controlplane import AUDIT_POLICY, ROOT, ControlPlane
from support.costs import old_tritonmodel
from support.people import Team, apply_folder, bind, dry_run, refusal, tritonmodel
from support.thresholds import MAX_QPS, PREFIX

ROLES = {
    "developer": "tritonmodel-developer",
    "oncall": "tritonmodel-oncall",
    "viewer": "tritonmodel-viewer",
    "namespace-admin": "admin",  # Kubernetes' own
}
_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    users = [*ROLES, "one-model", "stranger", "model-deployer"]
    with controlplane.running(controllers=controlplane.has_controllers(), audit=AUDIT_POLICY, users=users) as plane:
        plane.install_crds()
        plane.install_keda()
        plane.install_routes()
        plane.api.create(tritonmodel("stored-before", {MAX_QPS: "fast", f"{PREFIX}depth": "2"}))
        plane.api.create(old_tritonmodel())
        plane.api.create(tritonmodel("too-many-before", {f"{MAX_QPS}.{n}": "1" for n in range(1, 71)}))
        operator_process.install(plane)
        for folder in ("rbac", "policies"):
            apply_folder(plane, ROOT / "manifests" / folder)
        _wait_for_policies(plane)
        yield plane


@pytest.fixture
def team(plane: ControlPlane) -> Team:
    """A namespace in which each user has the role that ROLES names."""
    namespace = f"team-{next(_numbers)}"
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    team = Team(plane, namespace)
    for user, role in ROLES.items():
        bind(team.plane, team.namespace, user, "ClusterRole", role)
    eventually(lambda: _may_list(team, "viewer") and _may_list(team, "oncall"), 10, "the roles in effect")
    return team


def _wait_for_policies(plane: ControlPlane) -> None:
    """Waits until every policy is in effect. Each takes effect separately, shortly after its creation."""
    api, obj = plane.api, tritonmodel("probe", {MAX_QPS: "fast"})
    eventually(lambda: refusal(lambda: dry_run(api, obj)), 20, "policy threshold-values in effect")
    # A user who may write any object but has none of the custom verbs.
    group = "rbac.authorization.k8s.io"
    wide = {"verbs": ["create", "patch", "update", "delete"], "apiGroups": ["*"], "resources": ["*"]}
    role = {"apiVersion": f"{group}/v1", "metadata": {"name": "wide"}}
    api.create({**role, "kind": "ClusterRole", "rules": [wide]})
    subject = {"apiGroup": group, "kind": "User", "name": "stranger"}
    ref = {"apiGroup": group, "kind": "ClusterRole", "name": "wide"}
    api.create({**role, "kind": "ClusterRoleBinding", "subjects": [subject], "roleRef": ref})
    stranger = Api.of(plane.kubeconfig_of_user("stranger"))
    for probe in (tritonmodel("probe", {MAX_QPS: "1"}), generated("ServiceAccount", "probe")):
        eventually(lambda p=probe: "Validating" in refusal(lambda: dry_run(stranger, p)), 20, "the policies in effect")


def _may_list(team: Team, user: str) -> bool:
    return not refusal(lambda: team.api(user).list("TritonModel"))
