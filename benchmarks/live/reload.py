"""Reloads of a loaded model under load: failed requests, latency, and the memory of the server.

Triton runs in Docker with a Python model. Four clients send requests over gRPC, first at rest and then during RELOADS
reloads, as `kubectl triton reload` makes them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from kubectl_triton.models import triton
from model_images.support import serving
from support.cluster import ROOT, Cluster

RELOADS = int(os.environ.get("RELOADS", "200"))
_CLIENTS, _PAUSE_SECONDS, _REST_SECONDS = 4, 0.01, 20.0
_WARM = 20
"""Reloads before the memory counts: the allocator's arenas grow at first."""
_ECHO = ROOT / "tests" / "e2e" / "images" / "echo"


@dataclass
class _Answers:
    """Latencies in seconds and errors of the requests of one phase."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.seconds, n=100)[-1]


def measure(_: Cluster) -> tuple[dict[str, object], dict[str, object]]:
    """Returns the figures and the conditions. Prints them on standard error, too."""
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder)
        repository.chmod(0o755)
        shutil.copytree(_ECHO / "repository" / "echo", repository / "echo")
        (repository / "echo" / "1" / "variant.txt").write_text("v1")
        options = ["--model-control-mode=explicit", "--load-model=echo"]
        with serving(repository, options=options) as server, triton.connect(server.grpc) as client:
            with _load(server.grpc) as rest:
                time.sleep(_REST_SECONDS)
            memory, took = list[int](), list[float]()
            with _load(server.grpc) as during:
                for _number in range(RELOADS):
                    start = time.monotonic()
                    client.reload("echo", 60.0)
                    took.append(time.monotonic() - start)
                    memory.append(_memory(server.container))
    warm = statistics.median(memory[_WARM - 5 : _WARM + 5])
    figures: dict[str, object] = {
        "reload_failed_requests": len(during.errors),
        "reload_requests": len(during.seconds) + len(during.errors),
        "reload_p99_ratio": round(during.p99 / rest.p99, 2),
        "reload_p99_s": round(during.p99, 4),
        "reload_memory_growth": round(statistics.median(memory[-10:]) / warm - 1, 4),
        "reload_s": round(statistics.median(took), 3),
    }
    print(figures, *during.errors[:5], sep="\n", file=sys.stderr)
    conditions: dict[str, object] = {
        "reloads": RELOADS,
        "clients": _CLIENTS,
        "p99_at_rest_s": round(rest.p99, 4),
        "memory_mib": [memory[0] >> 10, memory[-1] >> 10],
    }
    return figures, conditions


@contextlib.contextmanager
def _load(address: str) -> Iterator[_Answers]:
    """Sends requests from several clients while the context lasts."""
    answers, stop = _Answers(), threading.Event()

    def ask() -> None:
        with tritonclient.grpc.InferenceServerClient(address) as client:
            tensor = tritonclient.grpc.InferInput("INPUT", [1], "INT32")
            tensor.set_data_from_numpy(np.array([1], np.int32))
            while not stop.wait(_PAUSE_SECONDS):
                start = time.monotonic()
                try:
                    client.infer("echo", [tensor], client_timeout=30.0)
                except InferenceServerException as error:
                    answers.errors.append(str(error))
                else:
                    answers.seconds.append(time.monotonic() - start)

    threads = [threading.Thread(target=ask) for _ in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _memory(container: str) -> int:
    """Returns the resident memory of all processes of the container, in KiB."""
    result = subprocess.run(["docker", "top", container, "-o", "pid,rss"], capture_output=True, text=True, check=True)
    return sum(int(line.split()[1]) for line in result.stdout.splitlines()[1:])
