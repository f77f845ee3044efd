"""Helm installs, upgrades, rolls back and uninstalls the charts on a real API server."""

from __future__ import annotations

import copy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import controlplane
from support.api import Api, Object, eventually
from support.controlplane import ROOT, ControlPlane
from support.helm import CRDS, NAMESPACE, OPERATOR, HelmError, run, template
from support.people import tritonmodel

pytestmark = pytest.mark.release

CRD = "tritonmodels.tritonoperator.io"
MONITORING = "--set=monitoring.serviceMonitor.enabled=true,monitoring.rules.enabled=true,dashboards.enabled=true"
KEEP = "helm.sh/resource-policy"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """An API server with the CRDs of prometheus-operator and without the CRD of TritonModels."""
    with controlplane.running() as plane:
        for name in (NAMESPACE, "triton", "monitoring"):
            plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        documents = yaml.safe_load_all((ROOT / "tests/support/vendor/prometheus-operator.yaml").read_text())
        for crd in (d for d in documents if d["kind"] == "CustomResourceDefinition"):
            plane.api.apply(crd)
        eventually(lambda: dry_run(plane, template(OPERATOR, MONITORING)), 60, "the API server serves the CRDs")
        yield plane


def dry_run(plane: ControlPlane, text: str) -> bool:
    """Returns whether the API server accepts the objects without writing them. Unknown fields are errors."""
    arguments = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"]
    result = subprocess.run(
        ["kubectl", f"--kubeconfig={plane.kubeconfig}", *arguments],
        input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        print(result.stderr)
    return result.returncode == 0


VALUES = [
    ("", NAMESPACE),
    ("--set=scope=Namespace", "triton"),
    ("--set=scope=None", NAMESPACE),
    ("--set=policies.enabled=false,userRoles.enabled=false,networkPolicy.enabled=false", NAMESPACE),
    ("--set=watchNamespaces={triton,monitoring}", NAMESPACE),
    (MONITORING, NAMESPACE),
    ("--set=adapterRules.enabled=true", NAMESPACE),
    ("--set=commonLabels.team=a,podLabels.team=a,podAnnotations.note=b,monitoring.labels.release=c", NAMESPACE),
    ("--set=imagePullSecrets[0].name=a,nodeSelector.pool=b,tolerations[0].operator=Exists", NAMESPACE),
    (
        "--set=extraVolumes[0].name=a,extraVolumes[0].configMap.name=b,extraVolumeMounts[0].name=a"
        ",extraVolumeMounts[0].mountPath=/ca,extraEnv[0].name=SSL_CERT_FILE,extraEnv[0].value=/ca/tls.crt",
        NAMESPACE,
    ),
    ("--set=networkPolicy.extraEgress[0].ports[0].port=10902,image.pullPolicy=Always", NAMESPACE),
]


@pytest.mark.parametrize(("option", "namespace"), VALUES, ids=[option for option, _ in VALUES])
def test_the_api_server_accepts_what_the_chart_renders(plane: ControlPlane, option: str, namespace: str) -> None:
    assert dry_run(plane, template(OPERATOR, *([option] if option else []), namespace=namespace))


def test_the_dry_run_finds_an_unknown_field(plane: ControlPlane) -> None:
    assert not dry_run(plane, template(OPERATOR).replace("serviceAccountName:", "serviceAcountName:"))


def older_crd_chart(folder: Path) -> Path:
    """Returns a copy of the chart of the CRD, of an earlier version without the field spec.disruption."""
    chart = folder / CRDS.name
    shutil.copytree(CRDS, chart)
    file = chart / "templates" / "tritonmodels.yaml"
    head, _, crd_text = file.read_text().partition("spec:\n")
    crd: dict[str, Any] = yaml.safe_load("spec:\n" + crd_text)
    del spec_schema(crd)["disruption"]
    file.write_text(head + yaml.safe_dump(crd))
    metadata = yaml.safe_load((chart / "Chart.yaml").read_text())
    (chart / "Chart.yaml").write_text(yaml.safe_dump(metadata | {"version": "0.0.9", "appVersion": "0.0.9"}))
    return chart


def spec_schema(crd: Object) -> dict[str, Any]:
    """Returns the fields of TritonModel.spec in the CRD."""
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert isinstance(schema, dict)
    return schema


def test_helm_upgrades_the_crd_and_keeps_it_with_all_tritonmodels(plane: ControlPlane, tmp_path: Path) -> None:
    helm = Helm(plane)
    notes = helm("install", "triton-operator", OPERATOR)
    assert "This cluster has no CRD of TritonModels" in notes
    helm("install", "crds", older_crd_chart(tmp_path))
    api = plane.api.in_namespace("triton")
    eventually(lambda: serves(api), 30, "the API server serves TritonModels")
    assert "disruption" not in spec_schema(api.get("CustomResourceDefinition", CRD))
    uid = api.create(tritonmodel("detector"))["metadata"]["uid"]

    notes = helm("upgrade", "crds", CRDS)
    assert "It keeps the CRD and all TritonModels" in notes
    assert "disruption" in spec_schema(api.get("CustomResourceDefinition", CRD))
    eventually(lambda: keeps_new_field(api), 30, "the API server keeps spec.disruption")

    assert "This cluster has no CRD" not in helm("upgrade", "triton-operator", OPERATOR, "--set=replicas=3")
    assert plane.api.get("Deployment", "triton-operator", NAMESPACE)["spec"]["replicas"] == 3
    helm("rollback", "triton-operator", "1")
    assert plane.api.get("Deployment", "triton-operator", NAMESPACE)["spec"]["replicas"] == 2
    assert "disruption" in spec_schema(api.get("CustomResourceDefinition", CRD)), "a rollback keeps the newer CRD"

    helm("uninstall", "triton-operator")
    helm("uninstall", "crds")
    assert api.find("Deployment", "triton-operator", NAMESPACE) is None
    assert api.find("ClusterRole", "triton-operator") is None
    assert "deletionTimestamp" not in api.get("CustomResourceDefinition", CRD)["metadata"]
    assert api.get("TritonModel", "detector")["metadata"]["uid"] == uid
    # The next installation takes the kept CRD over.
    helm("install", "crds", CRDS)
    assert api.get("TritonModel", "detector")["metadata"]["uid"] == uid


def test_two_operators_in_namespaces_share_the_policies(plane: ControlPlane) -> None:
    helm = Helm(plane)
    notes = helm("install", "cluster-objects", OPERATOR, "--set=scope=None")
    assert "install an operator in each namespace" in notes
    for namespace in ("triton", "monitoring"):
        helm("install", "operator", OPERATOR, "--set=scope=Namespace", namespace=namespace)
    helm("uninstall", "operator", namespace="triton")
    assert plane.api.find("Deployment", "triton-operator", "triton") is None
    assert plane.api.get("Deployment", "triton-operator", "monitoring")
    policy = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/thresholds.tritonoperator.io"
    assert plane.api.request("GET", policy)
    helm("uninstall", "operator", namespace="monitoring")
    helm("uninstall", "cluster-objects")


def test_helm_takes_over_an_installation_by_kubectl(plane: ControlPlane) -> None:
    helm = Helm(plane)
    command = ["kubectl", f"--kubeconfig={plane.kubeconfig}", "apply", "-k", str(ROOT / "manifests/default")]
    subprocess.run(command, check=True, capture_output=True)
    before = plane.api.get("Deployment", "triton-operator", NAMESPACE)
    with pytest.raises(HelmError, match="cannot be imported into the current release"):
        helm("install", "triton-operator", OPERATOR)
    helm("upgrade", "triton-operator", OPERATOR, "--install", "--take-ownership", "--force-conflicts")
    after = plane.api.get("Deployment", "triton-operator", NAMESPACE)
    assert after["spec"] == before["spec"], "no rollout"
    # kubectl stays an owner of the fields.
    change = "--set=settings.LOG_LEVEL=DEBUG,replicas=1"
    with pytest.raises(HelmError, match="kubectl-client-side-apply"):
        helm("upgrade", "triton-operator", OPERATOR, change)
    helm("upgrade", "triton-operator", OPERATOR, change, "--force-conflicts")
    assert plane.api.get("Deployment", "triton-operator", NAMESPACE)["spec"]["replicas"] == 1
    helm("uninstall", "triton-operator")
    assert plane.api.find("Deployment", "triton-operator", NAMESPACE) is None


class Helm:
    """Helm with the rights of a cluster admin."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def __call__(self, command: str, release: str, *arguments: str | Path, namespace: str = NAMESPACE) -> str:
        return run(command, release, *arguments, f"--namespace={namespace}", kubeconfig=self._plane.kubeconfig)


def serves(api: Api) -> bool:
    path = api.path("TritonModel")
    try:
        return bool(api.request("GET", path))
    except Exception:
        return False


def keeps_new_field(api: Api) -> bool:
    model = copy.deepcopy(tritonmodel("other"))
    model["spec"]["disruption"] = {"maxUnavailable": 2}
    return "disruption" in api.request("POST", f"{api.path('TritonModel')}?dryRun=All", model)["spec"]
