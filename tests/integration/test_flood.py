"""A flood of the operator's port for metrics, and silent connections to its probes, stop no probe and no Lease.

Any pod that reaches the ports can cause both.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import operator_process
from support.api import Api, eventually
from support.controlplane import ControlPlane
from support.operator_process import NAME, NAMESPACE
from support.people import make

pytestmark = pytest.mark.integration

MODELS, CLIENTS, SILENT, PROBES = 100, 8, 200, 20


@contextlib.contextmanager
def flood(address: tuple[str, int], probe_address: tuple[str, int]) -> Iterator[list[int]]:
    """Requests the metrics and opens silent connections to their port, both without a pause.

    Also takes each place of the probes' port again as soon as it is free. Yields the sizes of answers.
    """
    over, sizes = threading.Event(), list[int]()

    def request() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), urllib.request.urlopen(
                f"http://{address[0]}:{address[1]}/metrics", timeout=10
            ) as answer:  # fmt: skip
                sizes.append(len(answer.read()))

    def connect(address: tuple[str, int], pause: float = 0.0) -> None:
        held: list[socket.socket] = []
        while not over.wait(pause):
            with contextlib.suppress(OSError):
                held.append(socket.create_connection(address, timeout=1))
            for old in held[:-SILENT]:
                old.close()
            del held[:-SILENT]

    threads = [threading.Thread(target=request) for _ in range(CLIENTS)]
    threads.append(threading.Thread(target=connect, args=(address,)))
    threads.append(threading.Thread(target=connect, args=(probe_address, 0.2)))
    for thread in threads:
        thread.start()
    try:
        yield sizes
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_flood_and_silent_connections_stop_neither_probes_nor_the_lease(
    control_plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    kubeconfig = operator_process.install(control_plane)
    settings = {"METRICS_SECONDS": "1", "WATCH_NAMESPACES": api.namespace}
    with operator_process.running(kubeconfig, tmp_path, **settings) as operator:
        for number in range(MODELS):
            make(api, f"m{number}")

        def spec() -> dict[str, object]:
            return dict(control_plane.api.get("Lease", NAME, NAMESPACE)["spec"])

        eventually(lambda: api.find("Deployment", f"m{MODELS - 1}"), 60, lambda: operator.log[-2000:])
        before = spec()
        with flood(operator.metrics_address, operator.probe_address) as sizes:
            eventually(lambda: len(sizes) > 5, 60, "answers of the flooded port")
            for path in ("/healthz", "/readyz") * PROBES:
                # A kubelet restarts the container after three failed probes.
                assert "ok" in (operator.get(path) for _ in range(3))
                time.sleep(0.25)  # the flood needs time to do harm
        after = spec()
        assert after["holderIdentity"] == before["holderIdentity"]
        assert str(after["renewTime"]) > str(before["renewTime"])
        assert after["leaseTransitions"] == before["leaseTransitions"]
        assert operator.stop() == 0
