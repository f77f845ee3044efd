"""Processes are killed at random times: the operator, the API server, etcd."""

from __future__ import annotations

import random
import signal
import time

import pytest

from faults.conftest import COLLECTED_SECONDS, Begin, Rounds, Scene
from support.api import eventually
from support.operator_process import NAME, NAMESPACE, Operator

pytestmark = pytest.mark.faults


def leads(operator: Operator, seconds: float = 40) -> None:
    eventually(lambda: operator.is_leader(), seconds, lambda: operator.log[-3000:])


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
        assert operator.stop() == 0


def free_the_lease(scene: Scene) -> None:
    """Releases the Lease of a dead operator, as if it had expired."""
    scene.plane.api.patch("Lease", NAME, {"spec": {"holderIdentity": ""}}, namespace=NAMESPACE)


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
        assert operator.crashes == []
        assert operator.stop() == 0
