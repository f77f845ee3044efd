"""One tenant tries to take the operator's memory. The operator runs under the memory limit of its container, at which
the kernel kills it."""

from __future__ import annotations

import contextlib
import functools
import random
import socket
import string
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.conftest import Scene
from support import bad_servers, memory, operator_process
from support.api import Api, Object, RefusedError, condition, eventually
from support.bad_servers import answers
from support.operator_process import Operator
from support.people import tritonmodel
from support.workload import Kubelet
from triton_operator.cluster.entry import LARGEST
from triton_operator.probe.fetch import Limits
from triton_operator.probe.triton import MAX_ENTRIES

pytestmark = pytest.mark.faults

LIMIT = memory.shipped_limit()
Limited = Callable[..., contextlib.AbstractContextManager[Operator]]
READY = b'[{"name": "pre", "version": "1", "state": "READY"}, {"name": "detection", "version": "1", "state": "READY"}]'


@pytest.fixture
def limited(kubeconfig: Path, tmp_path: Path) -> Limited:
    """Starts the operator under the limit of its container. At the end it still runs."""

    @contextlib.contextmanager
    def start(**env: str) -> Iterator[Operator]:
        with (
            operator_process.running(kubeconfig, tmp_path, wait=False, **env) as operator,
            memory.limit(operator.process, LIMIT) as limit,
        ):
            eventually(lambda: alive(operator).is_leader(), 60, lambda: operator.log[-3000:])
            yield operator
            peak = memory.peak(alive(operator).process)
            print(f"{peak:.0f} MiB at most, of {LIMIT >> 20}; killed at the limit: {limit}")
            assert peak < LIMIT >> 20

    return start


def alive(operator: Operator) -> Operator:
    code = operator.process.poll()
    assert code is None, f"the operator ended with {code}: {operator.log[-3000:]}"
    return operator


@pytest.fixture
def other(scene: Scene) -> Iterator[Scene]:
    """Another tenant: a namespace with a TritonModel `modest` whose server answers."""
    name = f"{scene.api.namespace}-other"
    scene.plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    api = scene.plane.api.in_namespace(name)
    kubelet = Kubelet(api)
    kubelet.addresses["modest"] = "127.0.0.91"
    with bad_servers.server("127.0.0.91", answers(READY)), kubelet.running():
        yield Scene(scene.plane, api, scene.work, kubelet, scene.foreign, scene.rounds)
        scene.plane.api.delete("Namespace", name)


def is_served(other: Scene, operator: Operator) -> None:
    """Waits until a change of the other tenant's TritonModel is deployed, and its models are in the status."""
    image = f"registry.example.com/triton:{time.time_ns()}"
    other.api.apply(tritonmodel("modest", entrypoint="detection", server={"image": image}), "users")

    def served() -> bool:
        model = alive(operator) and other.api.get("TritonModel", "modest")
        deployment = other.api.find("Deployment", "modest")
        deployed = deployment and deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image
        return bool(deployed) and model.get("status", {}).get("loaded") == "2/2"

    eventually(served, 60, lambda: (other.api.get("TritonModel", "modest"), operator.log[-3000:]))


def reported(api: Api, name: str, kind: str) -> tuple[str, str]:
    entry = condition(api.get("TritonModel", name), kind)
    return entry.get("reason", ""), entry.get("message", "")


# Answers of servers

SERVERS = 600
FLOOD = b"[" + b",".join(b'{"name":"%d","state":"x"}' % n for n in range(147_000)) + b"]"
"""Short entries, within 4 MiB."""


def largest(connection: socket.socket, over: threading.Event) -> None:
    """Sends a unique answer of the maximum size."""
    width = Limits().body_bytes // (MAX_ENTRIES - 10) - 80
    names = (f"{random.getrandbits(4 * width):x}" for _ in range(MAX_ENTRIES - 10))
    answers(b"[" + b",".join(b'{"name":"%s","state":"x"}' % n.encode() for n in names) + b"]")(connection, over)


def test_answers_of_servers_use_no_more_than_their_share(scene: Scene, other: Scene, limited: Limited) -> None:
    flooders = [f"flood-{n}" for n in range(10)]
    scene.kubelet.addresses |= {"greedy": "127.0.0.90", **dict.fromkeys(flooders, "127.0.0.92")}
    with (
        bad_servers.server("127.0.0.90", largest),
        bad_servers.server("127.0.0.92", answers(FLOOD)),
        limited() as operator,
    ):
        for name in flooders:
            scene.work.create(name, replicas=1)
        scene.work.create("greedy", replicas=SERVERS, monitoring={"enabled": False})
        for name in flooders:
            eventually(
                lambda n=name: reported(scene.api, n, "ModelsLoaded")[0] == "AnswerUnusable", 120,
                lambda: (alive(operator), scene.api.get("TritonModel", flooders[0])["status"]),
            )  # fmt: skip
        assert "is larger than 256 KiB" in reported(scene.api, flooders[0], "ModelsLoaded")[1]
        eventually(
            lambda: "use the namespace's share" in str(scene.api.get("TritonModel", "greedy")), 180,
            lambda: alive(operator).log[-3000:],
        )  # fmt: skip
        eventually(
            lambda: ready_replicas(alive(operator), scene.api, "greedy") == SERVERS,
            240,
            "all servers",
        )
        is_served(other, operator)


def ready_replicas(_: Operator, api: Api, name: str) -> int:
    return int(api.get("TritonModel", name).get("status", {}).get("readyReplicas", 0))


# Stored TritonModels


def strange(name: str) -> Object:
    """Returns a TritonModel of 0.9 MB that no pod could use."""
    deep: Object = functools.reduce(lambda inner, _: {"a": inner}, range(60), {})
    return tritonmodel(name, podTemplate={"spec": {"nodeSelector": {"a": [{}] * 300_000}, "affinity": deep}})


def heavy(name: str, seed: int) -> Object:
    """Returns a TritonModel of almost the maximum size, with text that can't be compressed."""
    chance = random.Random(seed)
    args = ["--x=" + "".join(chance.choices(string.ascii_letters, k=4000)) for _ in range(62)]
    assert sum(map(len, args)) < LARGEST
    return tritonmodel(name, server={"args": args}, replicas=0)


def test_rejects_tritonmodels_that_no_pod_could_use(scene: Scene) -> None:
    with pytest.raises(RefusedError, match=r"spec\.podTemplate\.spec\.nodeSelector\.a in body must be of type string"):
        scene.api.create(strange("big"))


def test_contains_tritonmodels_that_were_stored_without_bounds(scene: Scene, other: Scene, limited: Limited) -> None:
    names = [f"big-{n}" for n in range(12)]

    def contained(operator: Operator) -> None:
        for name in names:
            eventually(
                lambda n=name: reported(scene.api, n, "Progressing")[0] == "TooLarge", 180, lambda: operator.log[-3000:]
            )
            assert scene.api.find("Deployment", name) is None
        is_served(other, operator)

    with scene.plane.without_bounds():
        for name in names:
            scene.api.create(strange(name))
        with limited(RESYNC_SECONDS="5") as operator:
            contained(operator)
            message = reported(scene.api, names[0], "Progressing")[1]
            assert "TritonModel big-0 has 880 KiB of JSON with 600000 values" in message
            assert "a TritonModel may have at most 256 KiB with 16384 values" in message
        with limited(RESYNC_SECONDS="5") as operator:  # as after a restart
            contained(operator)
            versions = [scene.api.get("TritonModel", name)["metadata"]["resourceVersion"] for name in names]
            time.sleep(10)
            assert versions == [scene.api.get("TritonModel", n)["metadata"]["resourceVersion"] for n in names]
            scene.api.patch("TritonModel", names[0], {"spec": {"podTemplate": None}})
            eventually(lambda: scene.api.find("Deployment", names[0]), 60, lambda: operator.log[-3000:])
            scene.api.delete("TritonModel", names[0])
            del names[0]
    with limited() as operator:
        contained(operator)


def test_a_namespace_with_many_large_tritonmodels_uses_no_more_than_its_share(
    scene: Scene, other: Scene, limited: Limited
) -> None:
    names = [f"heavy-{n}" for n in range(60)]
    with limited(MEMORY_MIB="32") as operator:
        for number, name in enumerate(names):
            scene.api.create(heavy(name, number))
        is_served(other, operator)

        def crowded() -> list[str]:
            return [n for n in names if reported(scene.api, n, "Progressing")[0] == "NoRoom"]

        eventually(lambda: len(crowded()) > 20, 120, lambda: operator.log[-3000:])
        assert (
            "the objects of this namespace use more than its share"
            in reported(scene.api, crowded()[0], "Progressing")[1]
        )
        is_served(other, operator)
    for name in names[5:]:
        scene.api.delete("TritonModel", name)
    with limited(MEMORY_MIB="32") as operator:

        def results() -> set[tuple[bool, str]]:
            pairs = ((scene.api.find("Deployment", n), reported(scene.api, n, "Progressing")[0]) for n in names[:5])
            return {(deployment is not None, reason) for deployment, reason in pairs}

        # A TritonModel without room may have its Deployment from before, so both must be read.
        eventually(lambda: results() == {(True, "Complete")}, 60, lambda: (results(), operator.log[-3000:]))
