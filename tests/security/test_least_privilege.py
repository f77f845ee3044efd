"""The operator uses each of its permissions and needs no other. The API server's audit log shows it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support import bad_servers, controlplane, counting_server, gen, operator_process
from support.api import Api, Object, condition, eventually
from support.controlplane import ControlPlane
from support.fake_triton import FakeTriton, serving
from support.kubelet import add_pod
from support.operator_process import Operator
from support.people import make
from triton_operator.api import kinds, kubernetes_versions, names, thresholds
from triton_operator.manifests import rbac
from triton_operator.render.children import KINDS
from triton_operator.render.model_lists import read

pytestmark = pytest.mark.integration

SOON = 40.0
Use = tuple[str, str, str]
"""(API group, resource, verb)"""
NOT_IN_AUDIT_LOG: dict[Use, str] = {
    (names.GROUP, names.PLURAL, "editgenerated"): "checked by the policy generated.tritonoperator.io",
    (names.GROUP, f"{names.PLURAL}/finalizers", "update"): (
        "checked by the plugin OwnerReferencesPermissionEnforcement, which this API server uses: "
        "without the permission, the operator can't create children"
    ),
}


def granted() -> set[Use]:
    every = [*rbac.grants(), *rbac.cluster_grants(), *rbac.own_grants()]
    return {(g.group, resource, verb) for g in every for resource in g.resources for verb in g.verbs}


def used(events: list[Object]) -> set[Use]:
    out = set()
    for event in events:
        ref = event.get("objectRef")
        if ref and ref.get("resource"):
            resource = ref["resource"] + (f"/{ref['subresource']}" if "subresource" in ref else "")
            out.add((ref.get("apiGroup", ""), resource, event["verb"]))
            # An apply that creates an object needs `create` too.
            if event["verb"] == "patch" and event.get("responseStatus", {}).get("code") == 201:
                out.add((ref.get("apiGroup", ""), resource, "create"))
    return out


def child(kind: kinds.Kind, name: str, owner: Object | None = None) -> Object:
    """Returns an object of a child kind. Its owner is the TritonModel `owner`, if there is one."""
    match = {"matchLabels": {"a": name}}
    spec: Object = {
        "Service": {"ports": [{"port": 80}]},
        "Deployment": {
            "replicas": 0,
            "selector": match,
            "template": {"metadata": {"labels": {"a": name}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
        },
        "PodDisruptionBudget": {"selector": match},
        "NetworkPolicy": {"podSelector": match},
        "HorizontalPodAutoscaler": {
            "maxReplicas": 1,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        },
        "ScaledObject": {"scaleTargetRef": {"name": name}, "triggers": []},
        "HTTPRoute": {"hostnames": ["a.example.com"]},
        "GRPCRoute": {"hostnames": ["a.example.com"]},
        "BackendTrafficPolicy": {
            "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name}]
        },
        "PodMonitor": {"selector": match, "podMetricsEndpoints": []},
        "PrometheusRule": {"groups": []},
    }.get(kind.kind, {})
    metadata: Object = {"name": name}
    if owner:
        metadata["labels"] = names.labels(owner["metadata"]["name"])
        metadata["ownerReferences"] = [
            {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": owner["metadata"]["name"],
             "uid": owner["metadata"]["uid"], "controller": True}
        ]  # fmt: skip
    out: Object = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    return {**out, "spec": spec} if spec else out


def refuse_status(plane: ControlPlane, namespace: str, name: str) -> None:
    """Creates a policy that rejects the operator's status updates of this TritonModel."""
    group = "admissionregistration.k8s.io"
    rule = {"apiGroups": [names.GROUP], "apiVersions": ["*"], "operations": ["UPDATE"],
            "resources": [f"{names.PLURAL}/status"]}  # fmt: skip
    mine = f"object.metadata.namespace != '{namespace}' || object.metadata.name != '{name}'"
    policy = {
        "apiVersion": f"{group}/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "refuse-status"},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": mine}]},
    }
    spec = {"policyName": "refuse-status", "validationActions": ["Deny"]}
    binding = {**policy, "kind": "ValidatingAdmissionPolicyBinding", "spec": spec}
    for obj, plural in ((policy, "validatingadmissionpolicies"), (binding, "validatingadmissionpolicybindings")):
        plane.api.request("POST", f"/apis/{group}/v1/{plural}", obj)


def test_uses_every_permission_and_has_no_forbidden_request(plane: ControlPlane, tmp_path: Path) -> None:
    before = len(plane.audit_events())  # requests of other tests' operators
    # An existing Lease would hide the permission to create one.
    plane.api.delete("Lease", operator_process.NAME, operator_process.NAMESPACE)

    def requests() -> list[Object]:
        return plane.audit_events()[before:]

    # With the label, because one TritonModel has another account.
    labels = {f"{names.GROUP}/privileges": "any"}
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "privilege", "labels": labels}})
    api = plane.api.in_namespace("privilege")
    refuse_status(plane, "privilege", "silenced")
    for kind in KINDS:
        api.create(child(kind, gen.child_name(kind.kind, "taken")))
    kubeconfig = plane.kubeconfig_of(operator_process.NAMESPACE, operator_process.NAME)
    with operator_process.running(kubeconfig, tmp_path, PROMETHEUS_URL="http://127.0.0.1:9") as operator:
        create_every_kind(api, operator)
        use_taken_names(api, operator)
        delete_leftovers(api, operator)
        change_models(api, operator)
        evict_a_server(api, operator)
        make(api, "silenced")
        needed = granted() - set(NOT_IN_AUDIT_LOG)
        if kubernetes_versions.minor(controlplane.version()) < (1, 35):
            # Without image volumes, the operator doesn't ask for the nodes' container runtimes.
            needed -= {("", "nodes", "list")}
        # The operator deletes leftover pods one minute after the creation of a Deployment.
        eventually(lambda: not needed - used(requests()), 60 + SOON, lambda: (needed - used(requests()), operator.log))
        assert operator.stop() == 0
    # Not by RBAC. A policy may refuse the pods of TritonModels that other tests have left.
    decisions = {e.get("annotations", {}).get("authorization.k8s.io/decision") for e in requests()}
    assert decisions == {"allow"}
    assert not [e for e in requests() if e.get("responseStatus", {}).get("code") == 401]
    assert used(requests()) <= granted() - set(NOT_IN_AUDIT_LOG)


ROUTE: Object = {"gateway": {"name": "models"}, "hostnames": ["a.example.com"], "grpc": {"listener": "grpc"}}
EXPLICIT = {"modelControl": "explicit", "loadModels": ["detection"]}


def create_every_kind(api: Api, operator: Operator) -> None:
    """Makes the operator create a child of each kind."""
    make(api, "detection", replicas=2, networkPolicy={}, entrypoint="detection", route=ROUTE)
    make(api, "explicit", entrypoint="detection", server=EXPLICIT)
    annotations = {f"{thresholds.PREFIX}max-qps-per-replica": "1"}
    make(api, "scaled", annotations, autoscaling={"max": 3, "engine": "Direct"}, replicas=None)
    make(api, "keda", annotations, autoscaling={"max": 3, "engine": "KEDA"}, replicas=None)
    eventually(lambda: api.find("Deployment", "detection"), SOON, lambda: operator.log)
    serve(api, "detection")
    add_servers(api, operator)
    for kind in KINDS:
        name = {kinds.AUTOSCALER: "scaled", kinds.SCALED_OBJECT: "keda", kinds.CONFIG_MAP: "explicit"}.get(
            kind, "detection"
        )
        eventually(lambda k=kind.kind, n=name: api.find(k, gen.child_name(k, n)), SOON, lambda: operator.log)


def serve(api: Api, name: str, host: str = "") -> None:
    """Adds a pod whose check report names the models. The operator needs it to render rules."""
    report = gen.report("detection", entrypoint="detection")
    add_pod(api, gen.checked(report), gen.put("status.podIP", host), name=f"{name}-1", model=name)


def add_servers(api: Api, operator: Operator) -> None:
    """Makes the engine Direct add servers."""
    eventually(lambda: api.find("Deployment", "scaled"), SOON, lambda: operator.log)
    host = f"127.99.{os.getpid() % 250}.1"
    with counting_server.running(host, "detection") as server:
        server.serve(100)
        serve(api, "scaled", host)
        eventually(lambda: api.get("Deployment", "scaled")["spec"]["replicas"] > 1, SOON, lambda: operator.log)


def change_models(api: Api, operator: Operator) -> None:
    """Makes the operator load a model on a running server."""
    deployment = eventually(lambda: api.find("Deployment", "explicit"), SOON, lambda: operator.log)
    template = deployment["spec"]["template"]
    pod = {"name": "explicit-x-1", **{k: template["metadata"][k] for k in ("labels", "annotations")}}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": {**template["spec"], "nodeName": "n"}})
    host = f"127.98.{os.getpid() % 250}.1"
    status = gen.pod(gen.checked(gen.report("detection", entrypoint="detection")), gen.put("status.podIP", host))
    started = {**api.get("Pod", "explicit-x-1"), "status": status["status"]}

    def listed() -> list[str]:
        (models,) = read(api.get("ConfigMap", names.account("explicit"))).values()
        return list(models.listed)

    index = bad_servers.answers(json.dumps([{"name": "detection", "version": "1", "state": "READY"}]).encode())
    with serving(FakeTriton(), f"{host}:8001") as triton, bad_servers.server(host, index):
        api.request("PUT", api.path("Pod", "explicit-x-1") + "/status", started)
        api.patch("TritonModel", "explicit", {"spec": {"server": {"loadModels": ["detection", "other"]}}})
        eventually(lambda: listed() == ["detection", "other"], SOON, lambda: operator.log)
    assert triton.calls == ["load other"]


def use_taken_names(api: Api, operator: Operator) -> None:
    """Makes the operator find foreign objects with the names of children, and look up their owners."""
    anyone = {
        "podTemplate": {"spec": {"serviceAccountName": "default"}},
        "networkPolicy": {},
        "route": ROUTE,
        "entrypoint": "detection",
        "server": EXPLICIT,
    }
    make(api, "taken", replicas=2, **anyone)

    def name_is_taken() -> bool:
        return condition(api.get("TritonModel", "taken"), "Progressing").get("reason") == "NameTaken"

    eventually(name_is_taken, SOON, lambda: operator.log)
    template = api.get("Deployment", "detection")["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {**template["spec"], "nodeName": "node-1"}}
    metadata = {"name": "taken-1", "labels": names.labels("taken"), "annotations": template["metadata"]["annotations"]}
    api.create({**pod, "metadata": metadata})
    status = gen.pod(gen.checked(gen.report("detection", entrypoint="detection")), gen.put("status.podIP", ""))
    now = {**api.get("Pod", "taken-1"), "status": status["status"]}
    api.request("PUT", api.path("Pod", "taken-1") + "/status", now)
    for engine in ("HPA", "KEDA"):
        spec = {"replicas": None, "autoscaling": {"max": 3, "engine": engine}}
        generation = api.patch("TritonModel", "taken", {"spec": spec})["metadata"]["generation"]

        def is_taken(generation: int = generation) -> bool:
            active = condition(api.get("TritonModel", "taken"), "AutoscalerActive")
            return (active.get("reason"), active.get("observedGeneration")) == ("NameTaken", generation)

        eventually(is_taken, SOON, lambda: operator.log)


def evict_a_server(api: Api, operator: Operator) -> None:
    """Makes the operator evict a server that has stopped answering its health request."""
    make(api, "broken", replicas=1, healthRequest={"file": "detection/health.json"})
    eventually(lambda: api.find("Deployment", "broken"), SOON, lambda: operator.log)
    name = "broken-6d4cf56db6-x7k2p"  # as Kubernetes names it
    add_pod(api, gen.put("status.podIP", ""), gen.stopped_answering(), name=name, model="broken")
    eventually(lambda: "deletionTimestamp" in api.get("Pod", name)["metadata"], SOON, lambda: operator.log)


def delete_leftovers(api: Api, operator: Operator) -> None:
    """Makes the operator delete undesired children, and a ReplicaSet and a pod of a deleted Deployment."""
    owner = api.get("TritonModel", "detection")
    for kind in KINDS:
        api.create(child(kind, "stray", owner))
    for kind in KINDS:
        eventually(lambda k=kind.kind: api.find(k, "stray") is None, SOON, lambda: operator.log)
    # Leftovers of a Deployment and a ReplicaSet that no longer exist.
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "detection", "uid": "gone", "controller": True}
    template = api.get("Deployment", "detection")["spec"]["template"]
    metadata = {"labels": template["metadata"]["labels"], "ownerReferences": [deployment]}
    spec = {"replicas": 0, "selector": {"matchLabels": names.selector("detection")}, "template": template}
    leftover_replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "detection-1", **metadata},
        "spec": spec,
    }
    api.create(leftover_replica_set)
    owner = {**deployment, "kind": "ReplicaSet", "name": "detection-2"}
    pod = {"name": "detection-2-1", **template["metadata"], "ownerReferences": [owner]}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": template["spec"]})
