"""One control plane with controllers for all faults, a namespace with users, kubelets and strangers for each."""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import controlplane, fault_proxy, operator_process, world
from support.api import Api, eventually
from support.controlplane import ControlPlane
from support.fault_proxy import FaultProxy
from support.supervised import Supervised, supervised
from support.workload import Kubelet, Workload
from support.world import Foreign

_numbers = itertools.count(1)
Begin = Callable[..., AbstractContextManager[Supervised]]

PATIENCE_SECONDS = 60
"""For so long the operator leaves Kubernetes' collector alone, here instead of five minutes."""
COLLECTED_SECONDS = 60.0 + 2 * PATIENCE_SECONDS + 60.0
"""Within which all is whole where the watches of Kubernetes' own controllers ended: they wait for up to a minute
(client-go's reflector) before nothing of deleted TritonModels is left, and what they then miss for good the operator
leaves to them: what TritonModels have left, and for a minute what a Deployment's predecessors have. And the machine has
other things to do."""


@dataclass(frozen=True)
class Rounds:
    """How often, and how long, the world is broken: the short form, and the full one of `make soak`."""

    soak: bool = False
    kills: int = 5
    restarts: int = 1
    fault_seconds: float = 2.0
    outage_seconds: float = 3.0
    prometheus_seconds: float = 1.5
    hostile_edits: int = 40
    still_seconds: float = 1.5

    @classmethod
    def of_environment(cls) -> Rounds:
        if os.environ.get("SOAK") != "1":
            return cls()
        return cls(
            soak=True, kills=50, restarts=5, fault_seconds=20.0, outage_seconds=25.0, prometheus_seconds=300.0,
            hostile_edits=400, still_seconds=5.0,
        )  # fmt: skip


@pytest.fixture(scope="session")
def rounds() -> Rounds:
    return Rounds.of_environment()


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """A control plane with Deployments and garbage collection at work. Whoever kills a part of it starts it again."""
    if not controlplane.has_controllers():
        pytest.skip("no kube-controller-manager beside kube-apiserver")
    with controlplane.running(controllers=True) as found:
        found.install_crds()
        found.install_monitoring()
        yield found


@pytest.fixture(scope="session")
def kubeconfig(plane: ControlPlane) -> Path:
    """With the shipped rights, and no others."""
    return operator_process.install(plane)


@pytest.fixture(scope="session")
def proxy(kubeconfig: Path) -> Iterator[FaultProxy]:
    with fault_proxy.between(kubeconfig, seed()) as found:
        yield found


def seed() -> int:
    """Of all that is random here: SEED=… repeats a run."""
    return int(os.environ.get("SEED", "0")) or int.from_bytes(os.urandom(3)) + 1


@dataclass(frozen=True)
class Scene:
    """A namespace of a test's own, what users want of it, and what belongs to others."""

    plane: ControlPlane
    api: Api
    work: Workload
    kubelet: Kubelet
    foreign: Foreign
    rounds: Rounds

    def whole(self, operator: Supervised, room: float = 25, **more: object) -> float:
        """Asserts the state of the world (support/world.py), and that the operator has grown by no more than `room`,
        in MiB, since it leads; how long it took to become so."""
        more = {"still": self.rounds.still_seconds, **more}
        took = world.assert_whole(self.plane, self.work, self.foreign, operator, **more)  # type: ignore[arg-type]
        print(f"whole again after {took:.1f} s, {operator.memory:.0f} MiB, {operator.grown():+.0f} since it leads")
        assert operator.grown() < room
        return took


@pytest.fixture
def scene(plane: ControlPlane, rounds: Rounds, request: pytest.FixtureRequest) -> Iterator[Scene]:
    number = seed() ^ zlib.crc32(request.node.name.encode()) if os.environ.get("SEED") else seed()
    print(f"seed of the users: {number}")
    name = f"vision-{next(_numbers)}"
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    api = plane.api.within(name)
    found = Scene(plane, api, Workload(api, number), Kubelet(api), Foreign(api), rounds)
    with found.kubelet.running():
        yield found
        # Its end is not waited for: the next test has a namespace of its own.
        plane.api.delete("Namespace", name)


@pytest.fixture(scope="session")
def begin(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Begin:
    """Starts an operator that is kept running; `through`: a kubeconfig other than its own."""

    def start(through: Path | None = None, **env: str) -> AbstractContextManager[Supervised]:
        env = {"COLLECT_SECONDS": str(PATIENCE_SECONDS), **env}
        return supervised(through or kubeconfig, tmp_path_factory.mktemp("operator"), **env)

    return start


@pytest.fixture(scope="module")
def operator(begin: Begin) -> Iterator[Supervised]:
    """One for all tests of a module. None of their faults ends it."""
    with begin(DISCOVERY_SECONDS="1") as found:
        eventually(lambda: found.now.leads(), 60, lambda: found.log[-3000:])
        found.grown()
        yield found
        assert found.ends == []
        assert found.close() == 0
