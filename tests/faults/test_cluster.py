"""The cluster changes under the operator: rights go, the CRD is applied anew, namespaces end, people edit."""

from __future__ import annotations

import copy
import random
import time

import pytest
import yaml

from faults.conftest import Begin, Rounds, Scene
from faults.test_processes import leads
from support.api import Api, Object, RefusedError, eventually
from support.controlplane import ROOT
from support.operator_process import NAME
from support.workload import Repeated
from triton_operator.api import kinds, names

pytestmark = pytest.mark.faults

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def test_rights_are_taken_and_given_back(scene: Scene, begin: Begin, rounds: Rounds) -> None:
    """All of them at once, and then the right to write one kind."""
    api = scene.plane.api
    binding = api.request("GET", f"{RBAC}/clusterrolebindings/{NAME}")
    role = api.request("GET", f"{RBAC}/clusterroles/{NAME}")
    fewer = copy.deepcopy(role)
    for rule in fewer["rules"]:
        if "deployments" in rule["resources"]:
            rule["verbs"] = ["get", "list", "watch"]
    with begin() as operator:
        leads(operator)
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
        assert operator.ends == []
        assert operator.close() == 0


def reasons(api: Api) -> set[str]:
    """Of all conditions of all TritonModels."""
    models = api.list("TritonModel")
    return {c["reason"] for m in models for c in m.get("status", {}).get("conditions", [])}


def test_the_crd_is_applied_anew_under_load(scene: Scene, begin: Begin, rounds: Rounds) -> None:
    """Another description, and one more optional field: as an upgrade brings it, and a downgrade takes it away."""
    api = scene.plane.api
    shipped = yaml.safe_load((ROOT / "crds" / "tritonoperator.io_tritonmodels.yaml").read_text())
    newer = copy.deepcopy(shipped)
    schema = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["description"] = "Another description."
    schema["properties"]["spec"]["properties"]["somethingNew"] = {"type": "string"}
    with begin() as operator, scene.work.running():
        leads(operator)
        for number in range(2 * rounds.restarts):
            api.apply(newer if number % 2 == 0 else shipped, "installation")
            time.sleep(rounds.fault_seconds / 2)
            if number % 2 == 0 and scene.work.wanted:
                name = min(scene.work.wanted)
                with_new = copy.deepcopy(scene.work.wanted[name])
                with_new["spec"]["somethingNew"] = "known to the API server, and not to this operator"
                api.apply(with_new, "users")
    with begin() as operator:
        leads(operator)
        scene.whole(operator)
        assert operator.close() == 0


def test_a_namespace_ends_in_the_midst_of_it_and_comes_again(scene: Scene, begin: Begin, rounds: Rounds) -> None:
    """With the same names in it. While it ends, nothing can be made in it."""
    admin, name = scene.plane.api, scene.api.namespace
    with begin() as operator:
        leads(operator)
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
        assert operator.ends == []
        assert operator.close() == 0


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
        kind = self._random.choice([k.kind for k in kinds.CHILDREN])
        found = self._api.list(kind, names.MANAGED_SELECTOR)
        found = [o for o in found if any(r["kind"] == names.KIND for r in o["metadata"].get("ownerReferences", []))]
        if not found:
            return
        child = self._random.choice(found)
        deed = self._random.choice((self.edit, self.label, self.instance, self.delete, self.annotate, self.finalize))
        deed(kind, child["metadata"]["name"])
        self.did[deed.__name__] = self.did.get(deed.__name__, 0) + 1

    def edit(self, kind: str, name: str) -> None:
        edits: dict[str, Object] = {
            "Deployment": {"spec": {"progressDeadlineSeconds": 7, "replicas": 3}},
            "Service": {"spec": {"ports": [{"name": "http", "port": 1, "targetPort": 1}]}},
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


def test_someone_hostile_edits_children_again_and_again(scene: Scene, begin: Begin, rounds: Rounds) -> None:
    vandal = Vandal(scene.api, scene.work.seed)
    with begin() as operator:
        leads(operator)
        with scene.work.running(0.3), Repeated(vandal.step, 0.05) as deeds:
            eventually(lambda: deeds.count >= rounds.hostile_edits, 60 + rounds.hostile_edits)
        # Deployments that were deleted are made again, with the same template: pods of a fault that was provoked.
        scene.whole(operator)
        print(vandal.did)
        assert operator.ends == []
        assert operator.close() == 0
