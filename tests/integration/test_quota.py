"""The quota of docs/tenants.md, applied as it is written, with Kubernetes' own controllers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import controlplane, operator_process
from support.api import Api, RefusedError, condition, eventually
from support.controlplane import ROOT, ControlPlane
from support.people import refusal, tritonmodel
from triton_operator.api import names

pytestmark = pytest.mark.integration

NAMESPACE = "vision"
COUNTED = f"count/{names.PLURAL}.{names.GROUP}"
_PATHS = {"ResourceQuota": "resourcequotas", "LimitRange": "limitranges"}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    if not controlplane.has_controllers():
        pytest.skip("no kube-controller-manager beside kube-apiserver")
    with controlplane.running(
        controllers=True, manager_flags=["--controllers=resourcequota-controller", "--resource-quota-sync-period=5s"]
    ) as control_plane:
        control_plane.install_crds()
        yield control_plane


@pytest.fixture(scope="module")
def hard(plane: ControlPlane) -> dict[str, str]:
    """The limits of the page's first quota, in effect in the namespace."""
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for obj in documented():
        path = f"/api/v1/namespaces/{NAMESPACE}/{_PATHS[obj['kind']]}"
        plane.api.request("POST", path, obj)
    eventually(lambda: COUNTED in quota(plane.api).get("used", {}), 120, lambda: quota(plane.api))
    limits: dict[str, str] = quota(plane.api)["hard"]
    return limits


def documented() -> list[Any]:
    """Returns the objects of the page."""
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "tenants.md").read_text(), re.S)
    return list(yaml.safe_load_all(block))


def quota(api: Api) -> dict[str, Any]:
    status: dict[str, Any] = api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/resourcequotas/tenant")["status"]
    return status


def test_rejects_the_tritonmodel_above_the_quota(plane: ControlPlane, hard: dict[str, str]) -> None:
    api = plane.api.in_namespace(NAMESPACE)
    for number in range(int(hard[COUNTED])):
        api.create(tritonmodel(f"model-{number}"))
    with pytest.raises(RefusedError, match=f"exceeded quota: tenant.*{COUNTED}"):
        api.create(tritonmodel("one-more"))
    api.delete("TritonModel", "model-0")
    eventually(lambda: not refusal(lambda: api.create(tritonmodel("one-more"))), 60, lambda: quota(plane.api))


@pytest.mark.parametrize("priority", ["system-cluster-critical", "system-node-critical"])
def test_rejects_pods_of_system_priority(plane: ControlPlane, hard: dict[str, str], priority: str) -> None:
    api = plane.api.in_namespace(NAMESPACE)
    container = {"name": "a", "image": "a"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "critical"},
           "spec": {"priorityClassName": priority, "containers": [container]}}  # fmt: skip
    with pytest.raises(RefusedError, match="exceeded quota: no-priority"):
        api.create(pod)


def test_servers_start_within_the_quota_and_the_status_names_it_above(
    plane: ControlPlane, hard: dict[str, str], tmp_path: Path
) -> None:
    api = plane.api.in_namespace(NAMESPACE)
    with operator_process.running(operator_process.install(plane), tmp_path) as operator:
        name = api.list("TritonModel")[0]["metadata"]["name"]
        eventually(lambda: pods(api, name) == 1, 60, lambda: operator.log[-2000:])
        # Kubernetes counts concurrently created pods with a delay, and admits a few too many.
        api.patch("TritonModel", name, {"spec": {"replicas": 2 * int(hard["pods"])}})

        def is_reported() -> bool:
            progressing = condition(api.get("TritonModel", name), "Progressing")
            return progressing.get("reason") == "PodsRefused" and "exceeded quota: tenant" in progressing["message"]

        eventually(is_reported, 90, lambda: api.get("TritonModel", name).get("status"))
        assert pods(api, name) > 1


def pods(api: Api, name: str) -> int:
    """Returns the number of pods of this TritonModel's Deployment."""
    return sum(any(o["name"].startswith(f"{name}-") for o in pod["metadata"]["ownerReferences"])
               for pod in api.list("Pod"))  # fmt: skip
