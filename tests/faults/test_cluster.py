"""The cluster changes under the operator: rights go, the CRD is applied anew, namespaces end, people edit."""

from __future__ import annotations

import copy
import random
import time

import pytest
import yaml

from faults.conftest import COLLECTED_SECONDS, Rounds, Scene
from support import gen, world
from support.api import Api, Object, RefusedError, condition, eventually
from support.controlplane import ROOT
from support.operator_process import NAME
from support.supervised import Supervised
from support.workload import Repeated
from triton_operator.api import names
from triton_operator.render.children import KINDS

pytestmark = pytest.mark.faults

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def without_writing_deployments(role: Object) -> Object:
    """A copy of the operator's ClusterRole that may only read Deployments."""
    fewer = copy.deepcopy(role)
    for rule in fewer["rules"]:
        if "deployments" in rule["resources"]:
            rule["verbs"] = ["get", "list", "watch"]
    return fewer


def test_rights_are_taken_and_given_back(scene: Scene, operator: Supervised, rounds: Rounds) -> None:
    """All of them at once, and then the right to write one kind."""
    api = scene.plane.api
    binding = api.request("GET", f"{RBAC}/clusterrolebindings/{NAME}")
    role = api.request("GET", f"{RBAC}/clusterroles/{NAME}")
    fewer = without_writing_deployments(role)
    try:
        with scene.work.running():
            time.sleep(1)
            api.request("DELETE", f"{RBAC}/clusterrolebindings/{NAME}", {})
            time.sleep(rounds.fault_seconds)
            del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
            api.request("POST", f"{RBAC}/clusterrolebindings", binding)
            time.sleep(1)
            role = api.request("PUT", f"{RBAC}/clusterroles/{NAME}", fewer) | {"rules": role["rules"]}
            time.sleep(rounds.fault_seconds)
            eventually(lambda: "ApplyRefused" in reasons(scene.api), 20, lambda: operator.log[-3000:])
    finally:
        api.request("PUT", f"{RBAC}/clusterroles/{NAME}", role)
    scene.whole(operator)


@pytest.mark.parametrize("lost", ["all", "one kind"])
def test_it_works_again_within_seconds_once_its_rights_are_back(
    scene: Scene, operator: Supervised, rounds: Rounds, lost: str
) -> None:
    """However long they were gone, and by how many TritonModels that was noticed."""
    api = scene.plane.api
    binding = api.request("GET", f"{RBAC}/clusterrolebindings/{NAME}")
    role = api.request("GET", f"{RBAC}/clusterroles/{NAME}")
    fewer = without_writing_deployments(role)
    models = [f"m-{number}" for number in range(6)]
    for name in models:
        scene.work.create(name)
    scene.whole(operator)

    def image(name: str) -> str:
        return str(scene.api.get("Deployment", name)["spec"]["template"]["spec"]["containers"][0]["image"])

    def change(tag: str) -> None:
        for name in models:
            scene.api.patch("TritonModel", name, {"spec": {"server": {"image": f"example.com/triton:{tag}"}}})

    try:
        if lost == "all":
            api.request("DELETE", f"{RBAC}/clusterrolebindings/{NAME}", {})
        else:
            role = api.request("PUT", f"{RBAC}/clusterroles/{NAME}", fewer) | {"rules": role["rules"]}
        time.sleep(0.5)
        change("without")
        passes = operator.now.passes()
        time.sleep(max(17.0, 2.25 * rounds.fault_seconds))
        passes = operator.now.passes() - passes
    finally:
        if lost == "all":
            del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
            api.request("POST", f"{RBAC}/clusterrolebindings", binding)
        else:
            api.request("PUT", f"{RBAC}/clusterroles/{NAME}", role)
    began = time.monotonic()
    eventually(
        lambda: {image(name) for name in models} == {"example.com/triton:without"}, 60, lambda: operator.log[-3000:]
    )
    took = time.monotonic() - began
    print(f"all reconciled {took:.1f} s after the rights were back; {passes:.0f} passes while they were gone")
    assert took < 8
    assert passes < 400


def reasons(api: Api) -> set[str]:
    """Of all conditions of all TritonModels."""
    models = api.list("TritonModel")
    return {c["reason"] for m in models for c in m.get("status", {}).get("conditions", [])}


def test_the_crd_is_applied_anew_under_load(scene: Scene, operator: Supervised, rounds: Rounds) -> None:
    """Another description, and one more optional field: as an upgrade brings it, and a downgrade takes it away."""
    api = scene.plane.api
    shipped = yaml.safe_load((ROOT / "crds" / "tritonoperator.io_tritonmodels.yaml").read_text())
    newer = copy.deepcopy(shipped)
    schema = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["description"] = "Another description."
    schema["properties"]["spec"]["properties"]["somethingNew"] = {"type": "string"}
    with scene.work.running():
        for number in range(2 * rounds.restarts):
            api.apply(newer if number % 2 == 0 else shipped, "installation")
            time.sleep(rounds.fault_seconds / 2)
            if number % 2 == 0 and scene.work.wanted:
                name = min(scene.work.wanted)
                with_new = copy.deepcopy(scene.work.wanted[name])
                with_new["spec"]["somethingNew"] = "known to the API server, and not to this operator"
                api.apply(with_new, "users")
    scene.whole(operator, within=COLLECTED_SECONDS)


def test_a_namespace_ends_in_the_midst_of_it_and_comes_again(
    scene: Scene, operator: Supervised, rounds: Rounds
) -> None:
    """With the same names in it. While it ends, nothing can be made in it."""
    admin, name = scene.plane.api, scene.api.namespace
    for _ in range(rounds.restarts):
        with scene.work.running():
            time.sleep(2)
            before = {m["metadata"]["uid"] for m in scene.api.list("TritonModel")}
            admin.delete("Namespace", name)
            eventually(lambda: _again(admin, name), 60, f"namespace {name} made again")
            time.sleep(2)
        scene.foreign.plant()
        scene.whole(operator)
        assert before.isdisjoint(m["metadata"]["uid"] for m in scene.api.list("TritonModel"))


def _again(admin: Api, name: str) -> bool:
    try:
        admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    except RefusedError as error:
        if error.code not in (403, 409):
            raise
        return False
    return True


# Someone hostile


class Vandal:
    """Does all that may be done to children, at random: whatever it does is to be mended."""

    def __init__(self, api: Api, seed: int) -> None:
        self._api, self._random = api, random.Random(seed)
        self.did: dict[str, int] = {}

    def step(self) -> None:
        kind = self._random.choice([k.kind for k in KINDS])
        found = self._api.list(kind, names.MANAGED_SELECTOR)
        found = [o for o in found if any(r["kind"] == names.KIND for r in o["metadata"].get("ownerReferences", []))]
        if not found:
            return
        child = self._random.choice(found)
        deed = self._random.choice(
            (self.edit, self.label, self.instance, self.delete, self.annotate, self.finalize, self.hide)
        )
        deed(kind, child["metadata"]["name"])
        self.did[deed.__name__] = self.did.get(deed.__name__, 0) + 1

    def edit(self, kind: str, name: str) -> None:
        edits: dict[str, Object] = {
            "Deployment": {"spec": {"progressDeadlineSeconds": 7, "replicas": 3}},
            # To the API server this is another port, in the way of ours.
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

    def instance(self, kind: str, name: str) -> None:
        """As if it belonged to another model."""
        self._api.patch(kind, name, {"metadata": {"labels": {names.LABEL_INSTANCE: "m-3"}}})

    def annotate(self, kind: str, name: str) -> None:
        self._api.patch(kind, name, {"metadata": {"annotations": {names.ANNOTATION_TEMPLATE: "0"}}})

    def delete(self, kind: str, name: str) -> None:
        self._api.delete(kind, name)

    def finalize(self, kind: str, name: str) -> None:
        """It goes, but not at once."""
        self._api.patch(kind, name, {"metadata": {"finalizers": ["example.com/hold"]}})
        self._api.delete(kind, name)
        time.sleep(0.3)
        self._api.patch(kind, name, {"metadata": {"finalizers": None}})

    def hide(self, kind: str, name: str) -> None:
        """It goes, and no watch tells of it: a moment before it has lost its label."""
        self.label(kind, name)
        time.sleep(0.2)
        self.delete(kind, name)


def test_someone_hostile_edits_children_again_and_again(scene: Scene, operator: Supervised, rounds: Rounds) -> None:
    vandal = Vandal(scene.api, scene.work.seed)
    with scene.work.running(0.3), Repeated(vandal.step, 0.05):
        eventually(lambda: sum(vandal.did.values()) >= rounds.hostile_edits, 60 + rounds.hostile_edits)
    # Deployments that were deleted are made again, with the same template: pods of a fault that was provoked.
    scene.whole(operator)
    print(vandal.did)


def test_what_lost_its_owner_is_adopted_and_what_is_of_others_is_left_alone_until_it_is_gone(
    scene: Scene, operator: Supervised, rounds: Rounds
) -> None:
    """The owner reference is taken away, or a child is deleted and something else takes its name: then the model tells
    what is in the way, and goes on once it isn't any more."""
    for name in ("robbed", "replaced", "other"):
        scene.work.create(name, replicas=1)
    scene.whole(operator)
    kept = {o["metadata"]["uid"] for o in scene.api.list("Deployment")}
    for _ in range(rounds.restarts):
        robbed = scene.api.patch("Service", "robbed", {"metadata": {"ownerReferences": None}})["metadata"]["uid"]
        foreign = replace(scene.api, "Service", "replaced-headless")
        with scene.work.running():
            eventually(lambda: "NameTaken" in told(scene.api, "replaced"), 30, lambda: operator.log[-3000:])
            time.sleep(rounds.fault_seconds)
            scene.work.change("other")
        found = scene.api.get("Service", "replaced-headless")
        assert found["metadata"]["resourceVersion"] == foreign["metadata"]["resourceVersion"]
        scene.api.delete("Service", "replaced-headless")
        scene.whole(operator, within=90)
        assert scene.api.get("Service", "robbed")["metadata"]["uid"] == robbed
    assert kept <= {o["metadata"]["uid"] for o in scene.api.list("Deployment")}


def told(api: Api, name: str) -> set[str]:
    return {c["reason"] for c in api.get("TritonModel", name).get("status", {}).get("conditions", [])}


def replace(api: Api, kind: str, name: str) -> Object:
    """Deletes a child and puts something of its name there, however often the operator is faster."""

    def mine() -> Object | None:
        api.delete(kind, name)
        try:
            metadata = {"name": name, "namespace": api.namespace}
            return api.create(
                {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": {"ports": [{"port": 1}]}}
            )
        except RefusedError:
            return None

    return eventually(mine, 30, f"{kind} {name} taken", every=0.01)


# Pods and kinds of others


def test_pods_that_never_get_ready_are_told_of_and_stop_nobody_else(
    scene: Scene, operator: Supervised, rounds: Rounds
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
        wanted = {"pending": "Unschedulable", "pulling": "ImagePullFailed", "crashing": "ServerCrashed"}
        for name, reason in wanted.items():
            eventually(
                lambda n=name, r=reason: condition(scene.api.get("TritonModel", n), "Ready").get("reason") == r,
                30,
                lambda n=name: scene.api.get("TritonModel", n).get("status"),
            )
    # Not whole, but quiet: what stays broken is no reason to write.
    world.assert_still(scene.plane, operator, 4)
    for name in stuck:
        scene.work.delete(name)
    scene.whole(operator)


def test_the_kinds_of_prometheus_operator_go_and_come(scene: Scene, operator: Supervised, rounds: Rounds) -> None:
    for _ in range(rounds.restarts):
        with scene.work.running():
            time.sleep(1)
            scene.plane.remove_monitoring()
            scene.foreign.forget("PrometheusRule")
            time.sleep(rounds.fault_seconds)
        scene.whole(operator, monitoring=False)
        with scene.work.running():
            time.sleep(1)
            scene.plane.install_monitoring()
            time.sleep(rounds.fault_seconds)
        scene.whole(operator)
