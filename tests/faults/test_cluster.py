"""Changes of the cluster: lost permissions, a changed CRD, deleted namespaces and kinds, edited children."""

from __future__ import annotations

import copy
import random
import time

import pytest
import yaml

from faults.conftest import COLLECTED_SECONDS, Rounds, Scene
from support import clock, gen, invariants
from support.api import Api, Object, RefusedError, condition, eventually
from support.controlplane import ROOT
from support.operator_process import NAME, Operator
from support.workload import Repeated
from triton_operator.api import names
from triton_operator.render.children import KINDS

pytestmark = pytest.mark.faults

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def without_writing_deployments(role: Object) -> Object:
    """Returns a copy of the operator's ClusterRole that may only read Deployments."""
    result = copy.deepcopy(role)
    for rule in result["rules"]:
        if "deployments" in rule["resources"]:
            rule["verbs"] = ["get", "list", "watch"]
    return result


def test_converges_after_lost_permissions(scene: Scene, operator: Operator, rounds: Rounds) -> None:
    """Removes all permissions, and then those to write one kind."""
    api = scene.plane.api
    binding = api.request("GET", f"{RBAC}/clusterrolebindings/{NAME}")
    role = api.request("GET", f"{RBAC}/clusterroles/{NAME}")
    reader = without_writing_deployments(role)
    try:
        with scene.work.running():
            time.sleep(1)
            api.request("DELETE", f"{RBAC}/clusterrolebindings/{NAME}", {})
            time.sleep(rounds.fault_seconds)
            del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
            api.request("POST", f"{RBAC}/clusterrolebindings", binding)
            time.sleep(1)
            role = api.request("PUT", f"{RBAC}/clusterroles/{NAME}", reader) | {"rules": role["rules"]}
            time.sleep(rounds.fault_seconds)
            eventually(lambda: "ApplyRefused" in reasons(scene.api), 20, lambda: operator.log[-3000:])
    finally:
        api.request("PUT", f"{RBAC}/clusterroles/{NAME}", role)
    scene.assert_converged(operator)


@pytest.mark.parametrize("lost", ["all", "one kind"])
def test_reconciles_all_tritonmodels_within_seconds_after_its_permissions_return(
    scene: Scene, operator: Operator, rounds: Rounds, lost: str
) -> None:
    api = scene.plane.api
    binding = api.request("GET", f"{RBAC}/clusterrolebindings/{NAME}")
    role = api.request("GET", f"{RBAC}/clusterroles/{NAME}")
    reader = without_writing_deployments(role)
    models = [f"m-{number}" for number in range(6)]
    for name in models:
        scene.work.create(name)
    scene.assert_converged(operator)

    def image(name: str) -> str:
        return str(scene.api.get("Deployment", name)["spec"]["template"]["spec"]["containers"][0]["image"])

    def change(tag: str) -> None:
        for name in models:
            scene.api.patch("TritonModel", name, {"spec": {"server": {"image": f"example.com/triton:{tag}"}}})

    try:
        if lost == "all":
            api.request("DELETE", f"{RBAC}/clusterrolebindings/{NAME}", {})
        else:
            role = api.request("PUT", f"{RBAC}/clusterroles/{NAME}", reader) | {"rules": role["rules"]}
        time.sleep(0.5)
        change("without")
        passes = operator.reconciles()
        # Now the backoff of each key is longer than the time that is allowed below.
        time.sleep(max(35.0, 2.25 * rounds.fault_seconds))
        passes = operator.reconciles() - passes
    finally:
        if lost == "all":
            del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
            api.request("POST", f"{RBAC}/clusterrolebindings", binding)
        else:
            api.request("PUT", f"{RBAC}/clusterroles/{NAME}", role)
    began = clock.of_an_idle_machine()
    eventually(
        lambda: {image(name) for name in models} == {"example.com/triton:without"}, 60, lambda: operator.log[-3000:]
    )
    seconds = clock.of_an_idle_machine() - began
    print(f"all reconciled {seconds:.1f} s after the permissions returned; {passes:.0f} reconciles without them")
    assert seconds < 20
    assert passes < 400


def reasons(api: Api) -> set[str]:
    """Returns the reasons of all conditions of all TritonModels."""
    models = api.list("TritonModel")
    return {c["reason"] for m in models for c in m.get("status", {}).get("conditions", [])}


def test_converges_after_changes_of_the_crd(scene: Scene, operator: Operator, rounds: Rounds) -> None:
    """Changes a description and adds an optional field, as an upgrade does, and reverts it, as a downgrade does."""
    api = scene.plane.api
    crd = yaml.safe_load((ROOT / "crds" / "tritonoperator.io_tritonmodels.yaml").read_text())
    newer_crd = copy.deepcopy(crd)
    schema = newer_crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["description"] = "Another description."
    schema["properties"]["spec"]["properties"]["somethingNew"] = {"type": "string"}
    with scene.work.running():
        for number in range(2 * rounds.restarts):
            api.apply(newer_crd if number % 2 == 0 else crd, "installation")
            time.sleep(rounds.fault_seconds / 2)
            if number % 2 == 0 and scene.work.models:
                name = min(scene.work.models)
                model = copy.deepcopy(scene.work.models[name])
                model["spec"]["somethingNew"] = "a field that the API server knows and this operator doesn't"
                eventually(lambda m=model: _is_applied(api, m), 60, "the API server knows the new field")
    scene.assert_converged(operator, within=COLLECTED_SECONDS)


def _is_applied(api: Api, model: Object) -> bool:
    """Applies the TritonModel. Returns False if the API server doesn't yet use the CRD's new schema."""
    try:
        api.apply(model, "users")
    except RefusedError as error:
        if "field not declared in schema" not in error.message:
            raise
        return False
    return True


def test_converges_after_a_namespace_is_deleted_and_recreated(scene: Scene, operator: Operator, rounds: Rounds) -> None:
    """The new namespace has the same names. Nothing can be created in a terminating namespace."""
    admin, name = scene.plane.api, scene.api.namespace
    for _ in range(rounds.restarts):
        with scene.work.running():
            time.sleep(2)
            uids = {m["metadata"]["uid"] for m in scene.api.list("TritonModel")}
            admin.delete("Namespace", name)
            eventually(lambda: _again(admin, name), 60, f"namespace {name} is recreated")
            time.sleep(2)
        scene.foreign.plant()
        scene.assert_converged(operator)
        assert uids.isdisjoint(m["metadata"]["uid"] for m in scene.api.list("TritonModel"))


def _again(admin: Api, name: str) -> bool:
    try:
        admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    except RefusedError as error:
        if error.code not in (403, 409):
            raise
        return False
    return True


# Hostile edits


class Vandal:
    """Edits and deletes random children. The operator must correct all of it."""

    def __init__(self, api: Api, seed: int) -> None:
        self._api, self._random = api, random.Random(seed)
        self.did: dict[str, int] = {}

    def step(self) -> None:
        kind = self._random.choice([k.kind for k in KINDS])
        children = self._api.list(kind, names.MANAGED_SELECTOR)
        children = [
            o for o in children if any(r["kind"] == names.KIND for r in o["metadata"].get("ownerReferences", []))
        ]
        if not children:
            return
        child = self._random.choice(children)
        deed = self._random.choice(
            (self.edit, self.label, self.model, self.delete, self.annotate, self.finalize, self.hide)
        )
        deed(kind, child["metadata"]["name"])
        self.did[deed.__name__] = self.did.get(deed.__name__, 0) + 1

    def edit(self, kind: str, name: str) -> None:
        edits: dict[str, Object] = {
            "Deployment": {"spec": {"progressDeadlineSeconds": 7, "replicas": 3}},
            # The API server treats it as a second port, which conflicts with ours.
            "Service": {"spec": {"ports": [{"name": "http", "port": 1, "targetPort": 1}], "selector": {"a": "b"}}},
            "ServiceAccount": {"automountServiceAccountToken": True},
            "PodDisruptionBudget": {"spec": {"maxUnavailable": 9}},
            "HorizontalPodAutoscaler": {"spec": {"maxReplicas": 99}},
            "PodMonitor": {"spec": {"podMetricsEndpoints": []}},
            "PrometheusRule": {"spec": {"groups": []}},
        }
        self._api.patch(kind, name, edits[kind])

    def label(self, kind: str, name: str) -> None:
        self._api.patch(kind, name, {"metadata": {"labels": {names.LABEL_MANAGED_BY: None}}})

    def model(self, kind: str, name: str) -> None:
        """Gives the child the label of another TritonModel."""
        self._api.patch(kind, name, {"metadata": {"labels": {names.LABEL_MODEL: "m-3"}}})

    def annotate(self, kind: str, name: str) -> None:
        self._api.patch(kind, name, {"metadata": {"annotations": {names.ANNOTATION_TEMPLATE: "0"}}})

    def delete(self, kind: str, name: str) -> None:
        self._api.delete(kind, name)

    def finalize(self, kind: str, name: str) -> None:
        """Deletes the child with a finalizer, so that the deletion takes some time."""
        self._api.patch(kind, name, {"metadata": {"finalizers": ["example.com/hold"]}})
        self._api.delete(kind, name)
        time.sleep(0.3)
        self._api.patch(kind, name, {"metadata": {"finalizers": None}})

    def hide(self, kind: str, name: str) -> None:
        """Removes the child's label and then deletes it, so that the operator's watch doesn't show the deletion."""
        self.label(kind, name)
        time.sleep(0.2)
        self.delete(kind, name)


def test_converges_after_many_hostile_edits(scene: Scene, operator: Operator, rounds: Rounds) -> None:
    vandal = Vandal(scene.api, scene.work.seed)
    with scene.work.running(0.3), Repeated(vandal.step, 0.05):
        eventually(lambda: sum(vandal.did.values()) >= rounds.hostile_edits, 60 + rounds.hostile_edits)
    # The operator recreates deleted Deployments with the same template, so their pods restart.
    scene.assert_converged(operator)
    print(vandal.did)


def test_adopts_orphans_and_reports_foreign_objects_until_they_are_deleted(
    scene: Scene, operator: Operator, rounds: Rounds
) -> None:
    """Removes an owner reference, and replaces a child with a foreign object of the same name."""
    for name in ("robbed", "replaced", "other"):
        scene.work.create(name, replicas=1)
    scene.assert_converged(operator)
    uids = {o["metadata"]["uid"] for o in scene.api.list("Deployment")}
    for _ in range(rounds.restarts):
        uid = scene.api.patch("Service", "robbed", {"metadata": {"ownerReferences": None}})["metadata"]["uid"]
        foreign = replace(scene.api, "Service", "replaced-headless")
        with scene.work.running():
            eventually(lambda: "NameTaken" in reasons_of(scene.api, "replaced"), 30, lambda: operator.log[-3000:])
            time.sleep(rounds.fault_seconds)
            scene.work.change("other")
        service = scene.api.get("Service", "replaced-headless")
        assert service["metadata"]["resourceVersion"] == foreign["metadata"]["resourceVersion"]
        scene.api.delete("Service", "replaced-headless")
        scene.assert_converged(operator, within=90)
        assert scene.api.get("Service", "robbed")["metadata"]["uid"] == uid
    assert uids <= {o["metadata"]["uid"] for o in scene.api.list("Deployment")}


def reasons_of(api: Api, name: str) -> set[str]:
    return {c["reason"] for c in api.get("TritonModel", name).get("status", {}).get("conditions", [])}


def replace(api: Api, kind: str, name: str) -> Object:
    """Replaces a child with a foreign object of the same name. Retries if the operator recreates the child first."""

    def mine() -> Object | None:
        api.delete(kind, name)
        try:
            metadata = {"name": name, "namespace": api.namespace}
            return api.create(
                {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": {"ports": [{"port": 1}]}}
            )
        except RefusedError:
            return None

    return eventually(mine, 30, f"a foreign {kind} {name}", every=0.01)


# Pods and optional kinds


def test_reports_pods_that_never_become_ready_without_affecting_others(
    scene: Scene, operator: Operator, rounds: Rounds
) -> None:
    stuck = {"pending", "pulling", "crashing"}
    scene.kubelet.statuses |= {
        "pending": gen.pod(gen.unschedulable("0/1 nodes are available"))["status"],
        "pulling": gen.pod(gen.waiting("fetch", "ImagePullBackOff", "not found"))["status"],
        "crashing": gen.pod(gen.ended("triton", 1, "no"), gen.put("status.podIP", ""))["status"],
    }
    for name in stuck:
        scene.work.create(name, replicas=2)
    with scene.work.running():
        reason_by_name = {"pending": "Unschedulable", "pulling": "ImagePullFailed", "crashing": "ServerCrashed"}
        for name, reason in reason_by_name.items():
            eventually(
                lambda n=name, r=reason: condition(scene.api.get("TritonModel", n), "Ready").get("reason") == r,
                30,
                lambda n=name: scene.api.get("TritonModel", n).get("status"),
            )
    # The operator doesn't write repeatedly for TritonModels that stay broken.
    invariants.assert_quiet(scene.plane, operator, 4)
    for name in stuck:
        scene.work.delete(name)
    scene.assert_converged(operator)


def test_converges_after_the_crds_of_prometheus_operator_are_deleted_and_recreated(
    scene: Scene, operator: Operator, rounds: Rounds
) -> None:
    for _ in range(rounds.restarts):
        with scene.work.running():
            time.sleep(1)
            scene.plane.remove_monitoring()
            scene.foreign.forget("PrometheusRule")
            time.sleep(rounds.fault_seconds)
        scene.assert_converged(operator, monitoring=False)
        with scene.work.running():
            time.sleep(1)
            scene.plane.install_monitoring()
            time.sleep(rounds.fault_seconds)
        scene.assert_converged(operator)
