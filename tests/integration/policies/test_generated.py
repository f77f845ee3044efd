"""Which users may write generated objects."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from integration.policies.objects import MANAGED, generated
from support import controlplane, operator_process
from support.api import Api, condition, eventually
from support.people import Team, bind, dry_run, refusal, tritonmodel
from triton_operator.api import names

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("kind", ["ServiceAccount", "Service", "Deployment"])
def test_namespace_admin_cannot_write_generated_objects(team: Team, kind: str) -> None:
    admin, cluster_admin = team.api("namespace-admin"), team.api()
    owner = cluster_admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}})
    cluster_admin.create(generated(kind, "detector", owner=owner))
    theirs = generated(kind, "theirs", {"app": "other"})
    eventually(lambda: not refusal(lambda: dry_run(admin, theirs)), 20, "the role in effect")
    admin.create(theirs)
    labels = {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}}
    collection = admin.path(kind) + f"?labelSelector={names.MANAGED_SELECTOR}"
    for way in (
        lambda: admin.patch(kind, "detector", {"metadata": {"annotations": {"a": "b"}}}),
        lambda: admin.patch(kind, "detector", labels),
        lambda: admin.apply(generated(kind, "detector", {**MANAGED, "a": "b"})),
        lambda: admin.create(generated(kind, "another")),
        lambda: admin.request("DELETE", admin.path(kind, "detector")),
        lambda: admin.request("DELETE", collection),
    ):
        message = refusal(way)
        assert "the operator manages them. Change the TritonModel detector instead" in message, message
    labelled = {"metadata": {"labels": MANAGED}}
    assert "the operator manages them" in refusal(lambda: admin.patch(kind, "theirs", labelled))
    admin.patch(kind, "theirs", {"metadata": {"annotations": {"a": "b"}}})
    admin.delete(kind, "theirs")
    cluster_admin.patch(kind, "detector", {"metadata": {"annotations": {"a": "b"}}})


def test_operator_and_garbage_collector_can_write_generated_objects(team: Team, tmp_path: Path) -> None:
    if not controlplane.has_controllers():
        pytest.skip("no kube-controller-manager beside kube-apiserver")
    admin, name = team.api("namespace-admin"), "detector"
    eventually(lambda: not refusal(lambda: dry_run(admin, tritonmodel("a"))), 20, "edit with the developer's verbs")
    kubeconfig = team.plane.kubeconfig_of(operator_process.NAMESPACE, operator_process.NAME)
    with operator_process.running(kubeconfig, tmp_path) as operator:
        admin.create(tritonmodel(name, replicas=2))
        eventually(lambda: admin.find("Deployment", name), 10, lambda: operator.log)
        # Kubernetes' own controllers write it.
        revision = "deployment.kubernetes.io/revision"
        eventually(lambda: admin.get("Deployment", name)["metadata"].get("annotations", {}).get(revision), 20)
        assert "may not write" in refusal(lambda: admin.patch("Deployment", name, {"spec": {"replicas": 9}}))
        admin.patch("TritonModel", name, {"spec": {"server": {"image": "triton:2"}, "replicas": 1}})
        eventually(
            lambda: admin.get("Deployment", name)["spec"]["template"]["spec"]["containers"][0]["image"] == "triton:2",
            10, lambda: operator.log,
        )  # fmt: skip
        # The operator deletes unneeded children and corrects drift by a cluster admin.
        eventually(lambda: not admin.find("PodDisruptionBudget", name), 10, lambda: operator.log)
        team.api().delete("Service", name)
        eventually(lambda: admin.find("Service", name), 10, lambda: operator.log)
        ready = condition(admin.get("TritonModel", name), "Ready")
        assert ready, operator.log
        admin.delete("TritonModel", name)
        for kind in ("Deployment", "Service", "ServiceAccount"):
            eventually(lambda k=kind: not admin.list(k, names.MANAGED_SELECTOR), 60, f"no {kind} left")
        # Deleting the namespace deletes all objects.
        admin.create(tritonmodel(name))
        eventually(lambda: admin.find("Deployment", name), 10, lambda: operator.log)
        team.plane.api.delete("Namespace", team.namespace)
        eventually(lambda: not team.plane.api.find("Namespace", team.namespace), 60, "the namespace gone")
        assert operator.stop() == 0
        assert "denied request" not in operator.log
        assert "Traceback" not in operator.log


def test_orphans_can_be_deleted_or_taken_over(team: Team, tmp_path: Path) -> None:
    """After --cascade=orphan the objects have no owner, so only RBAC applies."""
    if not controlplane.has_controllers():
        pytest.skip("no kube-controller-manager beside kube-apiserver")
    admin, name = team.api("namespace-admin"), "detector"
    eventually(lambda: not refusal(lambda: dry_run(admin, tritonmodel("a"))), 20, "edit with the developer's verbs")
    kubeconfig = team.plane.kubeconfig_of(operator_process.NAMESPACE, operator_process.NAME)
    with operator_process.running(kubeconfig, tmp_path) as operator:
        admin.create(tritonmodel(name))
        eventually(lambda: admin.find("Service", name), 10, lambda: operator.log)
        assert "Change the TritonModel detector" in refusal(
            lambda: admin.request("DELETE", admin.path("Service", name))
        )
        admin.request("DELETE", admin.path("TritonModel", name), {"propagationPolicy": "Orphan"})
        left = ("Deployment", "Service")
        eventually(lambda: not any(admin.get(k, name)["metadata"].get("ownerReferences") for k in left), 60, "orphans")
        edit = {"spec": {"replicas": 9}}
        message = refusal(lambda: admin.patch("Deployment", name, edit))
        assert "No TritonModel owns it: delete it, or remove the label" in message
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1", "controller": True}
        adopt = {"metadata": {"ownerReferences": [owner]}}
        assert "may not write" in refusal(lambda: admin.patch("Deployment", name, adopt))
        admin.patch("Deployment", name, {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}})
        admin.patch("Deployment", name, edit)
        for kind in left:
            admin.request("DELETE", admin.path(kind, name))
            eventually(lambda k=kind: not admin.find(k, name), 60, f"no {kind}")
        # A user without the RBAC permission still can't delete them.
        account = names.account(name)
        assert "cannot delete" in refusal(
            lambda: team.api("developer").request("DELETE", admin.path("ServiceAccount", account))
        )
        assert operator.stop() == 0


def test_protects_kinds_that_are_installed_later(team: Team) -> None:
    """The policy contains kinds of prometheus-operator. The other tests show that it works without their CRDs."""
    api, group = team.api(), "monitoring.coreos.com"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"podmonitors.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test's"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "PodMonitor", "plural": "podmonitors", "singular": "podmonitor"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    api.create(crd)
    path = f"/apis/{group}/v1/namespaces/{team.namespace}/podmonitors"
    stranger = Api.of(team.plane.kubeconfig_of_user("stranger"))

    def create(name: str, labels: dict[str, str]) -> str:
        obj = {"apiVersion": f"{group}/v1", "kind": "PodMonitor", "metadata": {"name": name, "labels": labels}}
        return refusal(lambda: stranger.request("POST", path, obj))

    try:
        eventually(lambda: not create("theirs", {"a": "b"}) or None, 20, "PodMonitors served")
        assert "may not write podmonitors" in create("detector", MANAGED)
    finally:
        api.delete("CustomResourceDefinition", f"podmonitors.{group}")


def test_everyone_with_the_permission_can_mark_a_scaled_object_as_keda_does_and_change_nothing_else(
    team: Team,
) -> None:
    keda, cluster_admin, kind, name = team.api("stranger"), team.api(), "ScaledObject", "detector"
    rules = [{"verbs": ["*"], "apiGroups": ["keda.sh"], "resources": ["scaledobjects"]}]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "keda"}, "rules": rules}
    group = "/apis/rbac.authorization.k8s.io/v1"
    team.plane.api.request("POST", f"{group}/namespaces/{team.namespace}/roles", role)
    bind(team.plane, team.namespace, "stranger", "Role", "keda")
    owner = cluster_admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}})
    created = cluster_admin.create(generated(kind, name, owner=owner))
    other = generated(kind, "theirs", {"app": "other"})
    eventually(lambda: not refusal(lambda: dry_run(keda, other)), 20, "the role in effect")

    marked = copy.deepcopy(created)
    marked["metadata"]["labels"]["scaledobject.keda.sh/name"] = name
    marked["metadata"]["finalizers"] = ["finalizer.keda.sh"]
    marked["spec"]["advanced"]["scalingModifiers"] = {}
    keda.request("PUT", keda.path(kind, name), marked)
    keda.patch(kind, name, {"status": {"hpaName": name}}, "status")
    for change in (
        {"spec": {"minReplicaCount": 0}},
        {"spec": {"idleReplicaCount": 0}},
        {"spec": {"minReplicaCount": None}},
        {"spec": {"triggers": [{"type": "cron", "metadata": {}}]}},
        {"spec": {"advanced": {"scalingModifiers": {"formula": "1"}}}},
        {"spec": {"advanced": {"restoreToOriginalReplicaCount": True}}},
        {"metadata": {"annotations": {"autoscaling.keda.sh/paused": "true"}}},
        {"metadata": {"finalizers": ["finalizer.keda.sh", "a.b/c"]}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"labels": {names.LABEL_MODEL: "other"}}},
        {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}},
        {"metadata": {"ownerReferences": []}},
    ):
        message = refusal(lambda c=change: keda.patch(kind, name, c))
        assert "the operator manages them" in message, (change, message)
    for way in (
        lambda: keda.request("DELETE", keda.path(kind, name)),
        lambda: keda.create(generated(kind, "another")),
    ):
        assert "the operator manages them" in refusal(way)
    keda.patch(kind, name, {"metadata": {"finalizers": None}})
    assert "finalizers" not in cluster_admin.get(kind, name)["metadata"]
