"""One tenant tries to exhaust the operator's memory. The operator runs with the memory limit of its container."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.conftest import Scene
from support import bad_servers, memory, operator_process
from support.api import eventually
from support.bad_servers import answers
from support.operator_process import Operator

pytestmark = pytest.mark.faults

LIMIT = memory.shipped_limit()
Limited = Callable[[], contextlib.AbstractContextManager[Operator]]


@pytest.fixture
def limited(kubeconfig: Path, tmp_path: Path) -> Limited:
    """Starts the operator with its container's limit. At the end it must still run, below the limit."""

    @contextlib.contextmanager
    def start() -> Iterator[Operator]:
        starting = operator_process.running(kubeconfig, tmp_path, wait=False)
        with starting as operator, memory.limit(operator.process, LIMIT):
            eventually(lambda: alive(operator).is_leader(), 60, lambda: operator.log[-3000:])
            yield operator
            alive(operator)
            took = memory.peak(operator.process)
            print(f"{took:.0f} MiB at most")
            assert took < LIMIT >> 20

    return start


def alive(operator: Operator) -> Operator:
    code = operator.process.poll()
    assert code is None, f"the operator ended with {code}: {operator.log[-3000:]}"
    return operator


def index(number: int, entries: int, width: int) -> bytes:
    """A unique repository index."""
    chance = random.Random(number)
    names = (f"{chance.getrandbits(4 * width):x}" for _ in range(entries))
    return b"[" + b",".join(b'{"name":"%s","state":"x"}' % name.encode() for name in names) + b"]"


def another_each_time(connection: socket.socket, over: threading.Event) -> None:
    """Sends unique answers of the maximum size."""
    answers(index(random.getrandbits(60), 1990, 50))(connection, over)


def watch(operator: Operator, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        alive(operator)
        print(f"  {memory.peak(operator.process):.0f} MiB, {operator.reconciles():.0f} passes")
        time.sleep(5)


def test_largest_server_answers_stay_within_the_memory_limit(scene: Scene, limited: Limited) -> None:
    scene.kubelet.addresses |= {"greedy": "127.0.0.90", "modest": "127.0.0.91"}
    with (
        bad_servers.server("127.0.0.90", another_each_time),
        bad_servers.server("127.0.0.91", answers(b'[{"name": "pre", "version": "1", "state": "READY"}]')),
        limited() as operator,
    ):
        scene.work.create("greedy", replicas=600)
        watch(operator, 120)


def strange(name: str) -> dict[str, Any]:
    deep: Any = {}
    for _ in range(60):
        deep = {"a": deep}
    return {
        "apiVersion": "tritonoperator.io/v1alpha1",
        "kind": "TritonModel",
        "metadata": {"name": name},
        "spec": {
            "modelImage": {"reference": "registry.example.com/a:1"},
            "podTemplate": {"spec": {"nodeSelector": {"a": [{}] * 300_000}, "affinity": deep}},
        },
    }


def test_large_tritonmodels_stay_within_the_memory_limit(scene: Scene, limited: Limited) -> None:
    for n in range(12):
        scene.api.create(strange(f"big-{n}"))
    with limited() as operator:
        watch(operator, 60)
    with limited() as operator:
        watch(operator, 60)
