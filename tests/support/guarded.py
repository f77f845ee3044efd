"""An API server with the shipped roles and policies, and users with few permissions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from . import controlplane, operator_process
from .controlplane import ROOT, ControlPlane
from .people import RBAC, apply_folder

AUDIT_POLICY = ROOT / "tests/security/audit.yaml"
USERS = (
    "developer",
    "podmaker",
    "childmaker",
    "netadmin",
    "routeadmin",
    "budgetadmin",
    "oncall",
    "statusmaker",
    "updater",
)


@contextlib.contextmanager
def running(*plugins: str) -> Iterator[ControlPlane]:
    """Runs it with these admission plugins too."""
    flags = [f"--enable-admission-plugins={','.join(plugins)}"] if plugins else []
    with controlplane.running(server_flags=flags, audit=AUDIT_POLICY, users=USERS) as plane:
        plane.install_crds()
        plane.install_monitoring()
        plane.install_keda()
        plane.install_routes()
        operator_process.install(plane)
        for folder in ("rbac", "policies"):
            apply_folder(plane, ROOT / "manifests" / folder)
        for user, group, *plurals in (
            ("podmaker", "", "pods"),
            ("childmaker", "", "pods", "services", "serviceaccounts"),
            ("netadmin", "networking.k8s.io", "networkpolicies"),
            ("routeadmin", "gateway.networking.k8s.io", "httproutes"),
            ("budgetadmin", "policy", "poddisruptionbudgets"),
        ):
            rules = [{"verbs": ["create"], "apiGroups": [group], "resources": plurals}]
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
        rules = [
            {"verbs": ["get", "update", "patch"], "apiGroups": ["tritonoperator.io"], "resources": ["tritonmodels"]}
        ]
        plane.api.create({**role, "metadata": {"name": "updater"}, "rules": rules})
        yield plane
