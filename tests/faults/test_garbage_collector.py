"""Kubernetes' garbage collector misses a deletion: the operator, or a later listing, deletes what is left."""

from __future__ import annotations

import pytest

from faults.conftest import GRACE_SECONDS, Begin, Scene
from faults.test_processes import free_the_lease, leads
from support import invariants
from support.api import eventually

pytestmark = pytest.mark.faults


def restart(scene: Scene, program: str) -> None:
    scene.plane.kill(program)
    scene.plane.start(program)


def test_deletes_the_servers_of_a_deployment_whose_deletion_the_garbage_collector_misses(
    scene: Scene, begin: Begin
) -> None:
    """A Deployment is deleted and recreated while Kubernetes' garbage collector is stopped. When it continues, it lists
    a Deployment with the same name."""
    with begin() as operator:
        leads(operator)
        scene.work.create("m-1", replicas=2)
        eventually(lambda: not invariants.problems(scene.work, scene.foreign), 60, lambda: operator.log[-3000:])
        with scene.plane.paused("kube-controller-manager"):
            restart(scene, "kube-apiserver")
            leads(operator)
            uid = scene.work.api.get("Deployment", "m-1")["metadata"]["uid"]
            scene.work.api.delete("Deployment", "m-1")

            def recreated() -> bool:
                deployment = scene.work.api.find("Deployment", "m-1")
                return deployment is not None and deployment["metadata"]["uid"] != uid

            eventually(recreated, 30, lambda: operator.log[-3000:])
            restart(scene, "kube-apiserver")
        scene.assert_converged(operator, within=120 + GRACE_SECONDS)
        assert ": its owner is gone" in operator.log, "the garbage collector didn't miss the deletion"
        assert operator.stop() == 0


def test_reconciles_a_recreated_tritonmodel_whose_deletion_the_garbage_collector_misses(
    scene: Scene, begin: Begin
) -> None:
    """A TritonModel is deleted and recreated while Kubernetes' garbage collector is stopped. It then lists again."""
    with begin() as operator:
        leads(operator)
        scene.work.create("m-1", monitoring={}, replicas=1)
        eventually(lambda: not invariants.problems(scene.work, scene.foreign), 60, lambda: operator.log[-3000:])
        operator.kill()
        free_the_lease(scene)
        with scene.plane.paused("kube-controller-manager"):
            # End its watches; otherwise it would get the events later.
            restart(scene, "kube-apiserver")
            scene.work.delete("m-1")
            scene.work.create("m-1", monitoring={"enabled": False}, replicas=1)
            # Restart again, so that it can't resume its watches.
            restart(scene, "kube-apiserver")
        scene.assert_converged(operator, within=90)
        assert operator.stop() == 0
