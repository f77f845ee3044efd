"""Users with roles, and the API server's answers to them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triton_operator.api import names

from . import gen
from .api import Api, Object, RefusedError
from .controlplane import ControlPlane

RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Team:
    """A control plane and a namespace in it."""

    plane: ControlPlane
    namespace: str

    def api(self, user: str = "") -> Api:
        """Returns a client for this user, by default the cluster admin."""
        return (Api.of(self.plane.kubeconfig_of_user(user)) if user else self.plane.api).in_namespace(self.namespace)

    def kubectl(
        self, user: str, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs kubectl in this namespace as this user."""
        config = self.plane.kubeconfig_of_user(user) if user else self.plane.kubeconfig
        command = ["kubectl", f"--kubeconfig={config}", f"--namespace={self.namespace}", *arguments]
        variables = {**os.environ, **(env or {})}
        return subprocess.run(command, input=stdin, env=variables, capture_output=True, text=True, check=False)

    def audited(self, name: str) -> list[Object]:
        """Returns the audit events of this TritonModel."""
        key = {"namespace": self.namespace, "name": name, "resource": names.PLURAL}
        return [e for e in self.plane.audit_events() if key.items() <= e["objectRef"].items()]


def bind(plane: ControlPlane, namespace: str, user: str, kind: str, role: str) -> None:
    """Binds the Role or ClusterRole `role` to `user` in `namespace`."""
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{user}-{role}"},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
    plane.api.request("POST", f"/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings", binding)


def bind_editor(plane: ControlPlane, namespace: str, user: str) -> None:
    """Grants `user` the permissions of the role `edit` in `namespace`, for the kinds that the operator uses.

    The test has to do this because a controller, which doesn't run here, writes the rules of `edit`.
    """
    rules = [{"verbs": ["*"], "apiGroups": [group], "resources": resources} for group, resources in _EDIT.items()]
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": f"editor-{user}"}, "rules": rules}
    plane.api.create(role)
    bind(plane, namespace, user, "ClusterRole", f"editor-{user}")


_EDIT = {
    "": ["pods", "services", "serviceaccounts", "configmaps"],
    "apps": ["deployments"],
    "autoscaling": ["horizontalpodautoscalers"],
    "policy": ["poddisruptionbudgets"],
    "networking.k8s.io": ["networkpolicies"],
    "gateway.networking.k8s.io": ["httproutes", "grpcroutes"],
    "gateway.envoyproxy.io": ["backendtrafficpolicies"],
    "monitoring.coreos.com": ["podmonitors", "prometheusrules", "prometheuses"],
}


def apply_folder(plane: ControlPlane, folder: Path) -> None:
    """Runs kubectl apply -k as the cluster admin."""
    command = ["kubectl", f"--kubeconfig={plane.kubeconfig}", "apply", "-k", str(folder)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def dry_run(api: Api, obj: Object) -> None:
    api.request("POST", api.path(obj["kind"]) + "?dryRun=All", obj)


def refusal(ask: Callable[[], object]) -> str:
    """Calls `ask` and returns the API server's refusal, or "" if it accepts the request."""
    try:
        ask()
    except RefusedError as error:
        return f"{error.code}: {error.message}"
    return ""


def tritonmodel(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    """Returns a TritonModel as a user writes it."""
    obj = gen.raw(**spec)
    obj["metadata"] = {"name": name, **({"annotations": annotations} if annotations else {})}
    return obj


def make(api: Api, name: str = gen.NAME, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    """Creates a TritonModel."""
    return api.create(tritonmodel(name, annotations, **spec))
