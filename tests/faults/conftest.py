"""Fixtures: one control plane for all tests, and a namespace with a workload, pods and foreign objects for each."""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import controlplane, fault_proxy, invariants, operator_process
from support.api import Api, eventually
from support.controlplane import ControlPlane
from support.fault_proxy import FaultProxy
from support.invariants import Foreign
from support.operator_process import Operator, Restart
from support.workload import Kubelet, Workload

_numbers = itertools.count(1)
Begin = Callable[..., AbstractContextManager[Operator]]

LONGEST = ("test_memory", "test_cluster", "test_processes", "test_servers", "test_network", "test_engines")
"""The files that begin first, so that none of them is left at the end when the other processes have nothing to do."""
GRACE_SECONDS = 60
"""The operator's grace period for Kubernetes' garbage collector; the default is five minutes."""
COLLECTED_SECONDS = 60.0 + 2 * GRACE_SECONDS + 60.0
"""The timeout for convergence after an outage of the API server.

Kubernetes' controllers wait up to a minute before they watch again (client-go's reflector). They may miss deletions for
good; the operator deletes these leftovers after its grace period. The rest is for a busy machine.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@dataclass(frozen=True)
class Rounds:
    """The number and the duration of faults: few and short, or many and long with `make soak`."""

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
    """Runs a control plane with controllers. A test that kills one of its programs must start it again."""
    if not controlplane.has_controllers():
        pytest.skip("kube-controller-manager isn't installed")
    with controlplane.running(controllers=True) as plane:
        plane.install_crds()
        plane.install_monitoring()
        plane.install_keda()
        plane.install_routes()
        yield plane


@pytest.fixture(scope="session")
def kubeconfig(plane: ControlPlane) -> Path:
    """Returns a kubeconfig with the RBAC of the installation."""
    return operator_process.install(plane)


@pytest.fixture(scope="session")
def proxy(kubeconfig: Path) -> Iterator[FaultProxy]:
    with fault_proxy.between(kubeconfig, seed()) as proxy:
        yield proxy


def seed() -> int:
    """Returns the seed of all random choices. Set SEED to repeat a run."""
    return int(os.environ.get("SEED", "0")) or int.from_bytes(os.urandom(3)) + 1


@dataclass(frozen=True)
class Scene:
    """A test's own namespace, its workload, and its foreign objects."""

    plane: ControlPlane
    api: Api
    work: Workload
    kubelet: Kubelet
    foreign: Foreign
    rounds: Rounds

    def assert_converged(self, operator: Operator, max_memory: float = 120, **more: object) -> float:
        """Checks the invariants (support/invariants.py) and returns the seconds until they held.

        Also checks that the operator has less memory than `max_memory` in MiB. One without a leak has 50 to 90.
        """
        more = {"still": self.rounds.still_seconds, **more}
        seconds = invariants.assert_converged(self.plane, self.work, self.foreign, operator, **more)  # type: ignore[arg-type]
        print(f"converged after {seconds:.1f} s, {operator.memory:.0f} MiB")
        assert operator.memory < max_memory
        return seconds


@pytest.fixture
def scene(plane: ControlPlane, rounds: Rounds, request: pytest.FixtureRequest) -> Iterator[Scene]:
    number = seed() ^ zlib.crc32(request.node.name.encode()) if os.environ.get("SEED") else seed()
    print(f"seed of the workload: {number}")
    name = f"vision-{next(_numbers)}"
    plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    api = plane.api.in_namespace(name)
    scene = Scene(plane, api, Workload(api, number), Kubelet(api), Foreign(api), rounds)
    with scene.kubelet.running():
        yield scene
        # Don't wait for the deletion: the next test uses another namespace.
        plane.api.delete("Namespace", name)


@pytest.fixture(scope="session")
def begin(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Begin:
    """Returns a function that runs an operator and starts it again when it ends.

    `through` is another kubeconfig, such as a proxy's.
    """

    def start(through: Path | None = None, **env: str) -> AbstractContextManager[Operator]:
        env = {"COLLECT_SECONDS": str(GRACE_SECONDS), **env}
        folder = tmp_path_factory.mktemp("operator")
        return operator_process.running(through or kubeconfig, folder, wait=False, restart=Restart.ALWAYS, **env)

    return start


@pytest.fixture(scope="module")
def operator(begin: Begin) -> Iterator[Operator]:
    """Runs one operator for all tests of a module. The injected faults must not end it."""
    with begin(DISCOVERY_SECONDS="1") as operator:
        eventually(lambda: operator.is_leader(), 60, lambda: operator.log[-3000:])
        yield operator
        assert operator.crashes == []
        assert operator.stop() == 0
