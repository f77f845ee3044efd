"""Metadata written through subresources: the policies refuse it, and the operator believes none of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import gen, operator_process
from support.api import Object, condition, eventually
from support.controlplane import ControlPlane
from support.operator_process import Operator
from support.people import RBAC, Team, refusal, tritonmodel
from triton_operator.api import names
from triton_operator.render.kept_template import pack, unpack

pytestmark = pytest.mark.integration


@pytest.fixture
def operator(plane: ControlPlane, team: Team, tmp_path: Path) -> Iterator[Operator]:
    kubeconfig = operator_process.install(plane)
    with operator_process.running(kubeconfig, tmp_path, WATCH_NAMESPACES=team.namespace) as process:
        yield process


def root(template: Object) -> Object:
    """Returns the pod template with empty values, which the API server drops from some fields."""
    result = copy.deepcopy(template)
    result["metadata"]["annotations"][names.ANNOTATION_TEMPLATE] = ""
    result["spec"]["securityContext"] |= {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0, "fsGroup": 0}
    for container in (*result["spec"]["initContainers"], *result["spec"]["containers"]):
        container["securityContext"] |= {"readOnlyRootFilesystem": False, "runAsUser": 0}
    return result


def hostile(template: Object) -> Object:
    """Returns the pod template with everything that a tenant may not have."""
    result = copy.deepcopy(template)
    result["spec"] |= {"hostPID": True, "hostNetwork": True, "serviceAccountName": "admin"}
    result["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    result["spec"]["volumes"] = [*result["spec"].get("volumes", []), {"name": "root", "hostPath": {"path": "/"}}]
    return result


@pytest.mark.parametrize("forge", [hostile, root])
def test_a_forged_pod_template_in_the_annotations_is_not_applied(
    forge: Callable[[Object], Object], team: Team, operator: Operator
) -> None:
    api = team.api()
    api.create(tritonmodel(gen.NAME))
    live = eventually(lambda: api.find("Deployment", gen.NAME), 10, lambda: operator.log)
    template = unpack(live["metadata"]["annotations"][names.ANNOTATION_POD_TEMPLATE])
    assert template is not None
    forged = {
        names.ANNOTATION_POD_TEMPLATE: pack(forge(template)),
        # Another hash, as that of an earlier version of the operator, so that the kept template counts.
        names.ANNOTATION_TEMPLATE: "earlier",
        f"{names.GROUP}/tools-image": "attacker.example.com/tools:1",
    }
    before = live["metadata"]["resourceVersion"]
    # As in a cluster without the policies.
    api.patch("Deployment", gen.NAME, {"metadata": {"annotations": forged}}, subresource="status")

    def repaired() -> Object | None:
        deployment = api.get("Deployment", gen.NAME)
        annotations = deployment["metadata"]["annotations"]
        return deployment if annotations[names.ANNOTATION_TEMPLATE] != "earlier" else None

    after = eventually(repaired, 10, lambda: operator.log[-3000:])
    assert after["metadata"]["resourceVersion"] != before
    assert after["spec"]["template"] == live["spec"]["template"]
    assert unpack(after["metadata"]["annotations"][names.ANNOTATION_POD_TEMPLATE]) == template
    assert condition(api.get("TritonModel", gen.NAME), "Progressing")["reason"] != "ApplyRefused"


METADATA = [
    {"labels": {names.LABEL_MANAGED_BY: None}},
    {"labels": {names.LABEL_MODEL: "other"}},
    {"annotations": {names.ANNOTATION_POD_TEMPLATE: "forged"}},
    {"ownerReferences": None},
    {"finalizers": ["example.com/wait"]},
]


@pytest.mark.parametrize("kind", ["Deployment", "Service"])
def test_a_writer_of_the_status_may_not_change_the_metadata_of_generated_objects(
    kind: str, team: Team, operator: Operator
) -> None:
    api, user = team.api(), team.api("statusmaker")
    api.create(tritonmodel(gen.NAME))
    live = eventually(lambda: api.find(kind, gen.NAME), 10, lambda: operator.log)
    for change in METADATA:
        message = refusal(lambda c=change: user.patch(kind, gen.NAME, {"metadata": c}, subresource="status"))
        # Some kinds don't take a field from the status. Then nothing changes.
        assert "the operator manages them" in message or api.get(kind, gen.NAME)["metadata"] == live["metadata"], change
    status = {"status": {"conditions": [{
        "type": "Test", "status": "True", "reason": "A", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}}  # fmt: skip
    assert refusal(lambda: user.patch(kind, gen.NAME, status, subresource="status")) == ""


def test_a_pod_gets_no_requests_by_a_label_of_its_status_or_its_binding(team: Team) -> None:
    api, user = team.api(), team.api("statusmaker")
    api.create({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine"},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    })  # fmt: skip
    label = {"metadata": {"labels": {names.LABEL_MODEL: gen.NAME}}}
    assert "may not set the label" in refusal(lambda: user.patch("Pod", "mine", label, subresource="status"))
    binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "a"}}
    path = f"/api/v1/namespaces/{team.namespace}/pods/mine/binding"
    labelled = {**binding, "metadata": {"name": "mine", **label["metadata"]}}
    # The second path is older, and does the same.
    for way in (path, f"/api/v1/namespaces/{team.namespace}/bindings"):
        assert "may not set the label" in refusal(lambda w=way: user.request("POST", w, labelled)), way
    # What the scheduler and the kubelet write.
    assert refusal(lambda: user.request("POST", path, {**binding, "metadata": {"name": "mine"}})) == ""
    assert refusal(lambda: user.patch("Pod", "mine", {"status": {"message": "a"}}, subresource="status")) == ""


def test_only_a_kubelet_sets_the_address_of_a_server(team: Team) -> None:
    """The operator and the Services would send requests to it."""
    api, user = team.api(), team.api("statusmaker")
    spec = {"containers": [{"name": "a", "image": "a"}]}
    for name, labels in (("server", names.labels(gen.NAME)), ("other", {})):
        api.create({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec,
        })  # fmt: skip
    moved = {"status": {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}}
    unlabelled = {"metadata": {"labels": {names.LABEL_MODEL: None}}, **moved}
    for change in (moved, unlabelled):
        message = refusal(lambda c=change: user.patch("Pod", "server", c, subresource="status"))
        assert "statusmaker may not change status.podIP of the server server" in message, message
    user.patch("Pod", "server", {"status": {"message": "a"}}, subresource="status")
    user.patch("Pod", "other", moved, subresource="status")
    api.request("POST", f"/apis/{RBAC}/v1/namespaces/{team.namespace}/rolebindings", {
        "metadata": {"name": "nodes"}, "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "system:node"},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "system:nodes"}],
    })  # fmt: skip
    path = api.path("Pod", "server") + "/status"
    kubelet = ("--as=system:node:node-1", "--as-group=system:nodes", "replace", "--raw", path, "-f", "-")

    def refused() -> str:
        pod = {**api.get("Pod", "server"), **moved}
        return team.kubectl("", *kubelet, stdin=json.dumps(pod)).stderr

    eventually(lambda: not refused(), 60, refused)
    assert api.get("Pod", "server")["status"]["podIP"] == "10.0.0.9"
