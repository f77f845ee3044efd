"""The way between the operator and the API server is bad: a proxy of the test's own makes it so."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from faults.conftest import Begin, Rounds, Scene
from faults.test_processes import leads
from support import world
from support.fault_proxy import WRITES, Fault, FaultProxy

pytestmark = pytest.mark.faults


def through(proxy: FaultProxy) -> Path:
    return proxy.kubeconfig_through(proxy.kubeconfig.parent)


def bad(how: str, share: float, **more: object) -> tuple[Fault, ...]:
    """This fault, and seldom enough at the Lease that it can still be held."""
    lease = Fault(how, share=0.15, resources=("leases",), **more)  # type: ignore[arg-type]
    return lease, Fault(how, share=share, but=("leases",), **more)  # type: ignore[arg-type]


FAULTS: dict[str, tuple[Fault, ...]] = {
    "409": bad("answer", 0.5, code=409, verbs=WRITES),
    "429": (*bad("answer", 0.3, code=429), *bad("answer", 0.3, code=429, retry_after="1")),
    "500": bad("answer", 0.5, code=500),
    "503": bad("answer", 0.5, code=503),
    "slow": bad("slow", 0.7, seconds=1.5),
    "reset": bad("reset", 0.4),
    "lost": bad("lost", 0.4),
    "truncated": bad("truncated", 0.4),
    "garbled": bad("garbled", 0.4),
}


def test_every_kind_of_bad_answer(scene: Scene, begin: Begin, proxy: FaultProxy, rounds: Rounds) -> None:
    """One process through all of them: it doesn't end, and doesn't grow."""
    memory: dict[str, float] = {}
    with begin(through(proxy)) as operator:
        leads(operator)
        for name, faults in FAULTS.items():
            with scene.work.running(), proxy.faulty(*faults):
                time.sleep(rounds.fault_seconds / 2)
                proxy.drop_watches()
                time.sleep(rounds.fault_seconds / 2)
            assert proxy.provoked[faults[0].how] > 0
            proxy.provoked.clear()
            took = scene.whole(operator)
            memory[name] = world.resident(operator)
            print(f"{name}: {took:.1f} s, {memory[name]:.0f} MiB, {operator.ends}")
        assert operator.ends == []
        assert operator.close() == 0
    first, *_, last = memory.values()
    assert last < first + 20, memory
