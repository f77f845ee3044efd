"""The change of a Deployment's template without new servers, with controllers that see every object late."""

from __future__ import annotations

import copy
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from support import gen
from triton_operator.reconcile.change_models import switch
from triton_operator.render import Choices, choose, render
from triton_operator.render.load_models import listed, with_models

Object = dict[str, Any]
CHOICES = Choices("tools:1", "Copy")
LISTS = [("a",), ("a", "b"), ("a", "c")]


def model(*models: str, **spec: Any) -> Any:
    return gen.model(entrypoint="a", server={"modelControl": "explicit", "loadModels": list(models)}, **spec)


def models(obj: Object) -> tuple[str, ...]:
    return listed(obj["spec"]["template"]["spec"])


def reference(owner: Object) -> Object:
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": gen.NAME, "uid": owner["metadata"]["uid"],
        "controller": True,
    }  # fmt: skip


class Switching(RuleBasedStateMachine):
    """The operator makes one step at a time, and is killed before or after each write. It keeps nothing in memory.

    kube-controller-manager has a cache for each kind. A new ReplicaSet would be a rollout.
    """

    @initialize()
    def deploy(self) -> None:
        self.model = model("a")
        found = render(self.model, choose(self.model, None, CHOICES))
        first = next(o for o in found if o["kind"] == "Deployment")
        self.desired = {names: copy.deepcopy(first) for names in LISTS}
        for names, desired in self.desired.items():
            desired["spec"]["template"] = with_models(first["spec"]["template"], names)
        self.wanted = LISTS[0]
        self.deployment = gen.live(first)
        self.deployment["status"] = {"observedGeneration": 1}
        template = copy.deepcopy(self.deployment["spec"]["template"])
        template["metadata"]["labels"]["pod-template-hash"] = "x"
        self.set: Object = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": "x", "namespace": gen.NAMESPACE, "uid": "x", "generation": 1,
                "annotations": {"deployment.kubernetes.io/revision": "1"},
                "ownerReferences": [reference(self.deployment)],
            },
            "spec": {"replicas": 2, "template": template},
            "status": {"observedGeneration": 1},
        }  # fmt: skip
        self.seen_deployment, self.seen_set = copy.deepcopy(self.deployment), copy.deepcopy(self.set)

    # the API server, as far as the operator uses it

    def list(self, *_: Any) -> list[Object]:
        return [copy.deepcopy(self.set)]

    def patch(self, live: Object, _: Any, step: Object) -> None:
        assert self.deployment["spec"].get("paused"), "otherwise the Deployment starts a rollout"
        self.set["spec"]["template"] = copy.deepcopy(step["value"])
        self.set["metadata"]["generation"] += 1

    def apply(self, desired: Object) -> None:
        before = self.deployment
        found = gen.live(desired, uid=before["metadata"]["uid"])
        found["status"] = before["status"]
        changed = found["spec"] != before["spec"]
        found["metadata"]["generation"] = before["metadata"]["generation"] + changed
        self.deployment = found

    # the operator

    @rule(wanted=st.sampled_from(LISTS))
    def all_servers_have_another_list(self, wanted: tuple[str, ...]) -> None:
        self.wanted = wanted

    @rule(killed=st.integers(0, 3).map(lambda n: not n))
    def reconcile(self, killed: bool = False) -> None:
        live = copy.deepcopy(self.deployment)
        desired, api = copy.deepcopy(self.desired[self.wanted]), cast(Any, self)
        self.waits = switch(api, self.model, CHOICES, [desired], live)
        if not killed:
            self.apply(desired)

    # kube-controller-manager

    @rule(deployments=st.booleans(), sets=st.booleans())
    def control(self, deployments: bool = True, sets: bool = True) -> None:
        """Both controllers act on what kube-controller-manager knows. `deployments`, `sets`: whose events arrive."""
        if deployments:
            self.seen_deployment = copy.deepcopy(self.deployment)
        if sets:
            self.seen_set = copy.deepcopy(self.set)
        if not self.seen_deployment["spec"].get("paused"):
            assert models(self.seen_deployment) == models(self.seen_set), "a rollout"
        self.deployment["status"]["observedGeneration"] = self.seen_deployment["metadata"]["generation"]
        self.set["status"]["observedGeneration"] = self.seen_set["metadata"]["generation"]

    @invariant()
    def the_pods_stay_current(self) -> None:
        if hasattr(self, "set"):
            hashes = {o["spec"]["template"]["metadata"]["annotations"]["tritonoperator.io/template-hash"]
                      for o in (self.set, self.deployment)}  # fmt: skip
            assert len(hashes) == 1

    def teardown(self) -> None:
        if not hasattr(self, "set"):
            return
        for _ in range(8):
            self.reconcile()
            self.control()
        assert not self.waits
        assert not self.deployment["spec"].get("paused")
        assert models(self.deployment) == models(self.set) == self.wanted
        assert self.set["spec"]["template"]["metadata"]["labels"]["pod-template-hash"] == "x"


Switching.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
TestSwitching = Switching.TestCase


def test_waits_until_the_pause_and_the_replica_set_are_seen() -> None:
    """The two orders of events that start a rollout without waiting."""
    scene = Switching()
    scene.deploy()
    scene.wanted = LISTS[1]
    scene.reconcile()
    scene.reconcile()
    scene.control(deployments=False)
    scene.control()
    scene.reconcile()
    scene.reconcile()
    scene.control(sets=False)
    assert models(scene.set) == LISTS[1]
    assert scene.deployment["spec"]["paused"]
    scene.teardown()
