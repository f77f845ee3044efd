"""An operator with WATCH_NAMESPACES, and with Roles in these namespaces instead of cluster-wide permissions."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
import yaml

from support import gen, operator_process
from support.api import Api, RefusedError, condition, eventually
from support.controlplane import ROOT, ControlPlane
from support.operator_process import NAME
from support.people import make

pytestmark = pytest.mark.integration


def test_reconciles_only_the_configured_namespaces(control_plane: ControlPlane, api: Api, tmp_path: Path) -> None:
    admin = control_plane.api
    kubeconfig = operator_process.install(control_plane, bind_cluster=False)
    binding = admin.path("ClusterRoleBinding")
    objects = yaml.safe_load_all((ROOT / "manifests" / "rbac" / "operator.yaml").read_text())
    cluster = next(o for o in objects if o["kind"] == "ClusterRoleBinding")
    names = [api.namespace, f"{api.namespace}-b", f"{api.namespace}-other"]
    for name in names[1:]:
        admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for name in names[:2]:
        role = {**cluster, "kind": "RoleBinding", "metadata": {"name": NAME, "namespace": name}}
        admin.request("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings", role)
    for name in names:
        make(admin.in_namespace(name))
    with contextlib.suppress(RefusedError):  # other tests of the session may have deleted it
        admin.request("DELETE", f"{binding}/{NAME}", {})
    try:
        watched = ", ".join(names[:2])
        with operator_process.running(kubeconfig, tmp_path, WATCH_NAMESPACES=watched) as operator:
            for name in names[:2]:
                eventually(
                    lambda n=name: condition(admin.get("TritonModel", gen.NAME, n), "Ready"), 15, lambda: operator.log
                )
                # The watch works too, not only the first listing.
                admin.delete("Service", gen.NAME, name)
                eventually(lambda n=name: admin.find("Service", gen.NAME, n), 10, lambda: operator.log)
            time.sleep(0.5)
            assert "conditions" not in admin.get("TritonModel", gen.NAME, names[2])["status"]
            assert admin.find("Deployment", gen.NAME, names[2]) is None
            assert operator.stop() == 0
            assert "Traceback" not in operator.log
            assert "orbidden" not in operator.log
    finally:
        operator_process.install(control_plane)
