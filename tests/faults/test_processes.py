"""Processes are killed at random times: the operator, the API server, etcd."""

from __future__ import annotations

import random
import signal
import time

import pytest

from faults.conftest import COLLECTED_SECONDS, Begin, Rounds, Scene
from support import invariants
from support.api import eventually
from support.operator_process import NAME, NAMESPACE
from support.supervised import Supervised

pytestmark = pytest.mark.faults


def leads(operator: Supervised, seconds: float = 40) -> None:
    eventually(lambda: operator.current.is_leader(), seconds, lambda: operator.log[-3000:])
    operator.grown()


def test_converges_after_the_operator_is_killed_at_random_times(scene: Scene, begin: Begin, rounds: Rounds) -> None:
    chance = random.Random(scene.work.seed)
    with begin() as operator, scene.work.running():
        for number in range(rounds.kills):
            leads(operator)
            time.sleep(chance.uniform(0, 1.5))
            operator.kill()
            if not rounds.soak or number % 5:
                # With SOAK=1 the operator must wait for the Lease to expire every fifth time.
                free_the_lease(scene)
            # Kill it while it starts, too.
            if chance.random() < 0.2:
                time.sleep(chance.uniform(0, 2))
                operator.kill()
        assert operator.exit_codes.count(-signal.SIGKILL) >= rounds.kills
    with begin(RESYNC_SECONDS="2") as operator:
        leads(operator)
        scene.assert_converged(operator, still=2 * 2.2)
        assert operator.close() == 0


def free_the_lease(scene: Scene) -> None:
    """Releases the Lease of a dead operator, as if it had expired."""
    scene.plane.api.patch("Lease", NAME, {"spec": {"holderIdentity": ""}}, namespace=NAMESPACE)


def restart(scene: Scene, program: str) -> None:
    scene.plane.kill(program)
    scene.plane.start(program)


@pytest.mark.parametrize("program", ["kube-apiserver", "etcd"])
def test_converges_after_the_control_plane_is_killed_and_restarted(
    program: str, scene: Scene, begin: Begin, rounds: Rounds
) -> None:
    with begin() as operator:
        with scene.work.running():
            leads(operator)
            for _ in range(rounds.restarts):
                time.sleep(2)
                scene.plane.kill(program)
                time.sleep(rounds.outage_seconds)
                scene.plane.start(program)
                time.sleep(2)
                leads(operator)
        scene.assert_converged(operator, within=COLLECTED_SECONDS)
        # The operator may end only because it couldn't renew the Lease in time.
        assert set(operator.exit_codes) <= {1}
        assert len(operator.exit_codes) <= rounds.restarts
        assert operator.close() == 0


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
            before = scene.work.api.get("Deployment", "m-1")["metadata"]["uid"]
            scene.work.api.delete("Deployment", "m-1")

            def recreated() -> bool:
                found = scene.work.api.find("Deployment", "m-1")
                return found is not None and found["metadata"]["uid"] != before

            eventually(recreated, 30, lambda: operator.log[-3000:])
            restart(scene, "kube-apiserver")
        took = scene.assert_converged(operator, within=150)
        assert took > 30, "the garbage collector didn't miss the deletion, so the test shows nothing"
        assert operator.close() == 0


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
        assert operator.close() == 0
