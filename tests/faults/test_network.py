"""Faults of the network between the operator and the API server, injected by a proxy."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from faults.conftest import Begin, Rounds, Scene
from faults.test_processes import leads
from support import clock, fault_proxy
from support.api import eventually
from support.fault_proxy import WRITES, Fault, FaultProxy
from triton_operator.runtime import elector

pytestmark = pytest.mark.faults


def through(proxy: FaultProxy) -> Path:
    return proxy.kubeconfig_through(proxy.kubeconfig.parent)


def bad(how: str, share: float, **more: object) -> tuple[Fault, ...]:
    """Returns the fault, limited to one occurrence per renewal for the Lease, so that the operator can keep it."""
    lease = Fault(how, share=0.5, pause=elector.RENEW_SECONDS, resources=("leases",), **more)  # type: ignore[arg-type]
    return lease, Fault(how, share=share, but=("leases",), **more)  # type: ignore[arg-type]


FAULTS: dict[str, tuple[Fault, ...]] = {
    "409": bad("answer", 0.5, code=409, verbs=WRITES),
    "429": (*bad("answer", 0.3, code=429), *bad("answer", 0.3, code=429, retry_after="1")),
    "5xx": (*bad("answer", 0.3, code=500), *bad("answer", 0.3, code=503)),
    "slow": bad("slow", 0.7, seconds=1.5),
    "hang": bad("hang", 0.1),
    "gone": (*bad("reset", 0.2), *bad("lost", 0.3)),
    "half": (*bad("truncated", 0.2), *bad("garbled", 0.3)),
}


def test_survives_every_kind_of_bad_answer(scene: Scene, begin: Begin, proxy: FaultProxy, rounds: Rounds) -> None:
    """One process gets all faults (several times with SOAK=1). It doesn't end, and its memory doesn't grow."""
    memory: list[float] = []
    with begin(through(proxy)) as operator:
        leads(operator)
        for _ in range(rounds.restarts):
            for name, faults in FAULTS.items():
                with scene.work.running(), proxy.faulty(*faults):
                    time.sleep(rounds.fault_seconds / 2)
                    proxy.drop_watches()
                    time.sleep(rounds.fault_seconds / 2)
                    # On a busy machine this time is too short for some faults.
                    kinds = {f.how for f in faults}
                    eventually(lambda h=kinds: proxy.provoked.keys() == h, 30, lambda: proxy.provoked)
                proxy.provoked.clear()
                seconds = scene.assert_converged(operator)
                memory.append(operator.memory)
                print(f"{name}: {seconds:.1f} s, {memory[-1]:.0f} MiB")
        assert operator.crashes == []
        assert operator.stop() == 0
    # The first faults create threads and connections, which stay.
    assert memory[-1] < memory[len(FAULTS) // 2] + 10, memory


def test_converges_with_watches_that_stop_sending_events(
    scene: Scene, begin: Begin, proxy: FaultProxy, rounds: Rounds
) -> None:
    """The connections are half-open. With a short resync interval the resync compensates. With SOAK=1 and the default
    interval the operator restarts a watch after 70 s without a bookmark."""
    env = {} if rounds.soak else {"RESYNC_SECONDS": "4"}
    with begin(through(proxy), **env) as operator, proxy.faulty():
        leads(operator)
        with scene.work.running():
            time.sleep(2)
            assert proxy.freeze_watches() >= 8
            proxy.watches_paused = not rounds.soak
            start = time.monotonic()
            time.sleep(3)
        seconds = scene.assert_converged(operator, within=120 if rounds.soak else 40)
        if rounds.soak:
            assert time.monotonic() - start > 30
            assert seconds < 100
        assert operator.crashes == []
        assert operator.stop() == 0


def test_two_replicas_never_write_at_the_same_time(
    scene: Scene, begin: Begin, kubeconfig: Path, rounds: Rounds
) -> None:
    """The proxy cuts off the leader: none of its requests gets an answer. A standby takes over. No write of the first
    leader happens after the first write of the second one."""
    with (
        fault_proxy.between(kubeconfig, 1) as old_proxy,
        fault_proxy.between(kubeconfig, 2) as new_proxy,
        begin(through(old_proxy)) as leader,
    ):
        for _ in range(rounds.restarts):
            leads(leader)
            with begin(through(new_proxy)) as follower:
                with scene.work.running():
                    eventually(lambda f=follower: f.get("/readyz") == "ok", 40, lambda f=follower: f.log)
                    time.sleep(1)
                    exits, start, idle_start = len(leader.exit_codes), time.monotonic(), clock.of_an_idle_machine()
                    old_proxy.cut_off = True
                    while not follower.is_leader():
                        assert clock.of_an_idle_machine() < idle_start + 60, follower.log[-3000:]
                        time.sleep(0.05)
                    # The old leader's process has ended, even with hanging requests.
                    assert leader.exit_codes[exits:] == [1]
                    assert time.monotonic() - start > 10
                    assert clock.of_an_idle_machine() - idle_start < 50  # usually 20 s
                    old_proxy.heal()
                    # The old leader restarts as a candidate.
                    eventually(lambda: leader.get("/readyz") == "ok", 40, lambda: leader.log)
                    assert not leader.is_leader()
                scene.assert_converged(follower)
                last_write = max(w.ended for w in old_proxy.writes if w.resource != "leases" and w.began < start + 20)
                first_write = min(w.began for w in new_proxy.writes if w.resource != "leases" and w.began > start)
                assert last_write < first_write, (last_write - start, first_write - start)
                assert follower.stop() == 0
