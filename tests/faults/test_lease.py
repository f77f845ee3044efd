"""Clocks that jump and hands that write where they shouldn't: the Lease, seen from one replica and from two."""

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
    """Its spec, after this was written into it."""
    if spec:
        scene.plane.api.patch("Lease", NAME, {"spec": spec}, namespace=NAMESPACE)
    return dict(scene.plane.api.get("Lease", NAME, NAMESPACE)["spec"])


def moment(**ago: float) -> str:
    return (datetime.now(UTC) - timedelta(**ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_a_holder_whose_clock_jumps_keeps_the_lease(scene: Scene, begin: Begin, rounds: Rounds) -> None:
    """As if its clock were a year ahead, behind, or didn't move: others count by their own clocks since they saw a
    change, so that none of this is a reason to take over, nor to stop."""
    with begin() as leader:
        leads(leader)
        with begin() as follower, scene.work.running():
            eventually(lambda: follower.now.ask("/readyz") == "ok", 40, lambda: follower.log)
            holder = lease(scene)["holderIdentity"]
            for renewed in (moment(days=-365), moment(days=365)):
                lease(scene, renewTime=renewed)
                time.sleep(rounds.fault_seconds)
                assert (leader.now.leads(), follower.now.leads()) == (True, False)
            # As others write it that don't know what it is for.
            lease(scene, leaseDurationSeconds=None, acquireTime=None, leaseTransitions=None, renewTime=None)
            time.sleep(rounds.fault_seconds)
            assert (leader.now.leads(), follower.now.leads()) == (True, False)
            assert lease(scene)["holderIdentity"] == holder
        scene.whole(leader)
        assert (leader.ends, follower.ends[1:]) == ([], [])
        assert leader.close() == 0


def test_a_dead_holder_from_the_future_is_waited_for_no_longer_than_any_other(
    scene: Scene, begin: Begin, rounds: Rounds
) -> None:
    if not rounds.soak:
        pytest.skip("takes half a minute, all of it waiting: only in the full form")
    with begin() as operator:
        leads(operator)
        with scene.work.running():
            taken = time.monotonic()
            lease(scene, holderIdentity="from-the-future", renewTime=moment(days=-365), leaseDurationSeconds=15)
            # It stops, and its next life waits for 15 s, by its own clock.
            eventually(lambda: operator.ends == [1], 20, lambda: operator.log[-3000:])
            leads(operator, 45)
            assert time.monotonic() - taken > 15
        scene.whole(operator)
        assert operator.close() == 0
