"""The engine Direct while the operator is killed, and with servers that answer slowly, lie or break the protocol."""

from __future__ import annotations

import contextlib
import itertools
import random
import time

import pytest

from faults.conftest import Begin, Rounds, Scene
from faults.test_processes import free_the_lease, leads
from faults.test_servers import BAD
from support import bad_servers, counting_server
from support.api import Api, Object, eventually, states
from support.counting_server import PORT, CountingServer
from support.operator_process import Operator
from support.workload import ENTRY, Repeated
from triton_operator.api import names, thresholds

pytestmark = pytest.mark.faults

LIMIT, MOST = 20, 6
"""max-qps-per-replica, and the maximum number of servers."""
ONE_BY_ONE = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 4}]}}


def create(scene: Scene, name: str, address: str, **scaling: object) -> None:
    """Creates a TritonModel with the engine Direct. All of its servers have this address."""
    scene.kubelet.addresses[name] = address
    metadata = {"name": name, "annotations": {f"{thresholds.PREFIX}max-qps-per-replica": str(LIMIT)}}
    spec = {
        "modelImage": {"reference": f"registry.example.com/{name}:v1"},
        "entrypoint": ENTRY,
        "autoscaling": {"engine": "Direct", "min": 1, "max": MOST, **scaling},
    }
    scene.api.apply({"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec})


def decided(api: Api, name: str) -> str:
    """Returns the reason of the last decision."""
    status: Object = api.get("TritonModel", name).get("status", {}).get("autoscaling", {})
    return str(status.get("reason", ""))


def replicas(api: Api, name: str) -> int:
    return int(api.get("Deployment", name)["spec"]["replicas"])


def grows_to(api: Api, name: str, servers: int) -> None:
    """Waits until the Deployment has this number of servers, or more."""
    eventually(lambda: replicas(api, name) >= servers, 60, lambda: replicas(api, name), every=0.02)


def numbers(api: Api, name: str, since: str) -> list[int]:
    """Returns every number of servers that the Deployment had."""
    return [n for n, _ in itertools.groupby(int(o["spec"]["replicas"]) for o in states(api, "Deployment", name, since))]


def test_a_step_continues_although_the_operator_is_killed_in_the_middle(scene: Scene, begin: Begin) -> None:
    with counting_server.running("127.0.0.60", ENTRY) as server, begin() as operator:
        leads(operator)
        create(scene, "step", "127.0.0.60", behavior=ONE_BY_ONE)
        eventually(lambda: decided(scene.api, "step") == "LeftToHPA", 60, lambda: operator.log[-3000:])
        since = scene.api.get("Deployment", "step")["metadata"]["resourceVersion"]
        server.serve(85)
        for servers in (2, 3, 4):
            grows_to(scene.api, "step", servers)
            operator.kill()
            free_the_lease(scene)
            autoscaler = scene.api.get("HorizontalPodAutoscaler", "step")["spec"]
            assert autoscaler["minReplicas"] >= replicas(scene.api, "step") >= servers
        leads(operator)
        eventually(lambda: replicas(scene.api, "step") == MOST, 90, lambda: operator.log[-3000:])
        counts = numbers(scene.api, "step", since)
        assert counts == sorted(counts)
        assert counts[-1] == MOST
        assert scene.api.get("HorizontalPodAutoscaler", "step")["spec"]["minReplicas"] <= MOST
        assert "Traceback" not in operator.log
        assert operator.stop() == 0


def test_servers_that_lie_or_are_slow_change_no_other_decision(scene: Scene, begin: Begin, rounds: Rounds) -> None:
    """The operator has fewer workers than there are bad servers."""
    chance = random.Random(scene.work.seed)
    bad_addresses = {f"bad-{name}": f"127.0.1.{number}" for number, name in enumerate(BAD, 20)}
    with contextlib.ExitStack() as stack:
        for name, address in bad_addresses.items():
            if name != "bad-nobody":
                stack.enter_context(bad_servers.server(address, BAD[name.removeprefix("bad-")], PORT))
        liar, slow, good = (stack.enter_context(counting_server.running(f"127.0.0.{n}", ENTRY)) for n in (61, 62, 63))
        slow.delay = 2.5  # longer than the interval of the polls
        operator = stack.enter_context(begin(WORKERS="4"))
        leads(operator)
        addresses = {**bad_addresses, "liar": "127.0.0.61", "slow": "127.0.0.62", "good": "127.0.0.63"}
        for name, address in addresses.items():
            create(scene, name, address)
        eventually(lambda: all(decided(scene.api, n) for n in addresses), 120, lambda: operator.log[-3000:])
        since = {n: scene.api.get("Deployment", n)["metadata"]["resourceVersion"] for n in addresses}

        def lie() -> None:
            liar.lie = chance.choice(("", "0", "-7", "NaN", "1e300", "1e999", "12", "9" * 300, "no number"))

        with Repeated(lie, 0.7):
            time.sleep(5 * rounds.fault_seconds)
            seconds = [reacts(scene, operator, server, name) for server, name in ((good, "good"), (slow, "slow"))]
        print(f"seconds until a server was added next to bad ones: {seconds}")
        for name in bad_addresses:
            assert numbers(scene.api, name, since[name]) in ([], [1]), name
        for name in addresses:
            counts = numbers(scene.api, name, since[name])
            assert counts == sorted(counts), name
            assert all(1 <= n <= MOST for n in counts), name
        assert "Traceback" not in operator.log
        assert operator.get("/healthz") == "ok"
        assert operator.crashes == []
        assert operator.stop() == 0


def reacts(scene: Scene, operator: Operator, server: CountingServer, name: str) -> float:
    """Raises the load of a server and returns the seconds until another one is added."""
    server.serve(0)
    began = time.monotonic()
    server.serve(85)
    eventually(lambda: replicas(scene.api, name) > 1, 60, lambda: (name, server.polls, operator.log[-3000:]))
    return time.monotonic() - began
