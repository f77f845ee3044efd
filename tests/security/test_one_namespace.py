"""The namespaced installation: the operator needs only a Role in one namespace, and no cluster-wide permission."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from support import gen, operator_process
from support.api import Api, Object, RefusedError, condition, eventually
from support.controlplane import ROOT, ControlPlane
from support.kubelet import add_pod
from support.operator_process import NAME
from support.people import apply_folder, make
from triton_operator.api import kinds, names
from triton_operator.render.children import KINDS

pytestmark = pytest.mark.integration

SOON = 40.0
THRESHOLD = {"max_qps": "80"}
OVERLAY = ROOT / "manifests" / "namespaced"
HOME = yaml.safe_load((OVERLAY / "kustomization.yaml").read_text())["namespace"]


def installed() -> list[Object]:
    result = subprocess.run(["kubectl", "kustomize", OVERLAY], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(result.stdout))


def test_installs_objects_only_in_its_namespace() -> None:
    objects = installed()
    assert {o["kind"] for o in objects} == {
        "ServiceAccount", "Role", "RoleBinding", "Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy",
    }  # fmt: skip
    assert {o["metadata"]["namespace"] for o in objects} == {HOME}
    (binding,) = [o for o in objects if o["kind"] == "RoleBinding"]
    assert [s["namespace"] for s in binding["subjects"]] == [HOME]
    (deployment,) = [o for o in objects if o["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    env = {e["name"]: e for e in container["env"]}
    assert env["WATCH_NAMESPACES"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
    assert "value" not in env["WATCH_NAMESPACES"]
    assert env["TOOLS_IMAGE"]["value"] == container["image"]


def test_operator_works_with_a_role_in_one_namespace(plane: ControlPlane, tmp_path: Path) -> None:
    for name in (HOME, "elsewhere"):
        plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    api, elsewhere = plane.api.in_namespace(HOME), plane.api.in_namespace("elsewhere")
    apply_folder(plane, OVERLAY)
    kubeconfig = plane.kubeconfig_of(HOME, NAME)
    make(elsewhere, "detection", THRESHOLD)
    with operator_process.running(
        kubeconfig, tmp_path, WATCH_NAMESPACES=HOME, POD_NAMESPACE=HOME, PROMETHEUS_URL="http://127.0.0.1:9"
    ) as operator:
        explicit = {"modelControl": "explicit", "loadModels": ["detection"]}
        make(
            api,
            "detection",
            THRESHOLD,
            replicas=2,
            networkPolicy={},
            entrypoint="detection",
            server=explicit,
            route={"gateway": {"name": "models"}, "hostnames": ["a.example.com"], "grpc": {"listener": "grpc"}},
        )
        make(api, "scaled", THRESHOLD, autoscaling={"max": 3})
        make(api, "keda", THRESHOLD, autoscaling={"max": 3, "engine": "KEDA"})
        eventually(lambda: api.find("Deployment", "detection"), SOON, lambda: operator.log)
        report = gen.report("detection", entrypoint="detection")
        add_pod(api, gen.checked(report), gen.put("status.podIP", ""), name="detection-1", model="detection")
        for kind in KINDS:
            name = {kinds.AUTOSCALER: "scaled", kinds.SCALED_OBJECT: "keda"}.get(kind, "detection")
            eventually(lambda k=kind.kind, n=name: api.find(k, gen.child_name(k, n)), SOON, lambda: operator.log)
        from_ = api.get("NetworkPolicy", "detection")["spec"]["ingress"][-1]["from"]
        assert from_[0]["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": HOME}}
        for name in ("detection", "scaled"):
            eventually(lambda n=name: condition(api.get("TritonModel", n), "Ready"), SOON, lambda: operator.log)
        # Drift correction, changes and deletions work by watch too, not only by the first listing.
        api.delete("Service", "detection")
        eventually(lambda: api.find("Service", "detection"), SOON, lambda: operator.log)
        api.patch("TritonModel", "detection", {"spec": {"replicas": 1, "networkPolicy": None}})
        for kind in ("PodDisruptionBudget", "NetworkPolicy"):
            eventually(lambda k=kind: api.find(k, "detection") is None, SOON, lambda: operator.log)
        assert api.get("Lease", names.FIELD_MANAGER)["spec"]["holderIdentity"]
        events = api.request("GET", f"/apis/events.k8s.io/v1/namespaces/{HOME}/events")["items"]
        assert "detection" in {e["regarding"]["name"] for e in events}
        # The operator reports Unknown for state that needs cluster-wide permissions.
        reason = condition(api.get("TritonModel", "detection"), "MonitoringAvailable")
        assert reason["status"] == "Unknown", reason
        assert elsewhere.find("Deployment", "detection") is None
        assert "conditions" not in elsewhere.get("TritonModel", "detection")["status"]
        assert operator.stop() == 0
        assert "Traceback" not in operator.log
        assert "orbidden" not in operator.log
    account = Api.of(kubeconfig)
    for path in (
        account.path("TritonModel", namespace="elsewhere"),
        account.path("Pod", namespace="elsewhere"),
        account.path("Namespace"),
        account.path("Node"),
        account.path("Secret", namespace=HOME),
    ):
        with pytest.raises(RefusedError, match="cannot list resource"):
            account.request("GET", path)
