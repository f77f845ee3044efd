"""The Lease with wrong clocks and foreign writes, with one and two replicas."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from faults.conftest import Begin, Rounds, Scene
from faults.test_processes import leads
from support.api import Object, eventually
from support.operator_process import NAME, NAMESPACE

pytestmark = pytest.mark.faults


def lease(scene: Scene, **spec: object) -> Object:
    """Writes the fields to the Lease's spec and returns the spec."""
    if spec:
        scene.plane.api.patch("Lease", NAME, {"spec": spec}, namespace=NAMESPACE)
    return dict(scene.plane.api.get("Lease", NAME, NAMESPACE)["spec"])


def moment(**ago: float) -> str:
    return (datetime.now(UTC) - timedelta(**ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_holder_with_a_jumping_clock_keeps_the_lease(scene: Scene, begin: Begin, rounds: Rounds) -> None:
    """The holder's clock is a year ahead, a year behind, or stopped. No replica takes over or stops, because each one
    measures the time since it saw a change with its own clock."""
    with begin() as leader:
        leads(leader)
        with begin() as follower, scene.work.running():
            eventually(lambda: follower.get("/readyz") == "ok", 40, lambda: follower.log)
            holder = lease(scene)["holderIdentity"]
            for renew_time in (moment(days=-365), moment(days=365)):
                lease(scene, renewTime=renew_time)
                time.sleep(rounds.fault_seconds)
                assert (leader.is_leader(), follower.is_leader()) == (True, False)
            # As a foreign writer may write it.
            lease(scene, leaseDurationSeconds=None, acquireTime=None, leaseTransitions=None, renewTime=None)
            time.sleep(rounds.fault_seconds)
            assert (leader.is_leader(), follower.is_leader()) == (True, False)
            assert lease(scene)["holderIdentity"] == holder
        scene.assert_converged(leader)
        assert (leader.crashes, follower.crashes) == ([], [])
        assert leader.stop() == 0


def test_takes_over_in_time_from_a_dead_holder_with_a_renew_time_in_the_future(
    scene: Scene, begin: Begin, rounds: Rounds
) -> None:
    if not rounds.soak:
        pytest.skip("takes half a minute of waiting; runs only with SOAK=1")
    with begin() as operator:
        leads(operator)
        with scene.work.running():
            start = time.monotonic()
            lease(scene, holderIdentity="from-the-future", renewTime=moment(days=-365), leaseDurationSeconds=15)
            # The operator ends; the restarted one waits 15 s by its own clock.
            eventually(lambda: operator.exit_codes == [1], 20, lambda: operator.log[-3000:])
            leads(operator, 45)
            assert time.monotonic() - start > 15
        scene.assert_converged(operator)
        assert operator.stop() == 0
