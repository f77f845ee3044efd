"""Ready, the metric and the plugin say that a server has a GPU by its limits and Triton doesn't use it.

Triton's answers are simulated, because it can't have a GPU here. `tests/server/test_placement.py` asks a real one.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from integration.world.steps import SOON, events, model, ready, wait_until_observed
from support import gen
from support.api import Api, condition, eventually
from support.controlplane import ControlPlane
from support.kubelet import add_pod
from support.operator_process import Operator
from support.people import make

pytestmark = pytest.mark.integration

_numbers = itertools.count(1)
METRIC = "triton_operator_gpu_not_used"
ONE_GPU = {"nvidia.com/gpu": "1"}


@dataclass
class Triton:
    """A server with the model net. `kind`: of its instances; "" refuses to say it. `requests`: their number by path."""

    host: str
    kind: str
    requests: Counter[str] = field(default_factory=Counter)

    def answer(self, path: str) -> Any:
        self.requests[path] += 1
        if path == "/v2/repository/index":
            return [{"name": "net", "version": "1", "state": "READY"}]
        if path == "/v2/models/stats":
            return {"model_stats": []}
        return {"instance_group": [{"kind": self.kind}]} if path == "/v2/models/net/config" and self.kind else None


@pytest.fixture
def triton() -> Iterator[Triton]:
    """A server on Triton's port of an address of its own."""
    served = Triton(f"127.{90 + next(_numbers)}.{os.getpid() % 250}.{1 + os.getpid() // 250 % 250}", "KIND_CPU")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            answer = served.answer(self.path)
            body = json.dumps(answer).encode()
            with contextlib.suppress(OSError):
                self.send_response(403 if answer is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    server = ThreadingHTTPServer((served.host, 8000), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield served
    server.shutdown()
    server.server_close()


def start(api: Api, triton: Triton, limits: dict[str, str], *, on_gpu: bool = True, restarts: int = 0) -> None:
    """Adds a TritonModel with these limits, and its pod. `on_gpu`: whether Triton should put net on a GPU."""
    if not restarts:
        make(api, entrypoint="net", server={"resources": {"limits": {"memory": "8Gi", **limits}}})
        wait_until_observed(api)
    report = gen.report("net", entrypoint="net")
    if on_gpu:
        report["models"][0]["gpu"] = True
    count = gen.put("status.containerStatuses.0.restartCount", restarts)
    add_pod(api, gen.checked(report), gen.put("status.podIP", triton.host), count)


def series(operator: Operator, api: Api) -> list[str]:
    """Returns the series of the metric about the TritonModels of this test."""
    of = f'{METRIC}{{namespace="{api.namespace}"'
    return [line for line in operator.get("/metrics").splitlines() if line.startswith(of)]


def test_tells_until_a_restarted_server_uses_its_gpu(
    api: Api, operator: Operator, control_plane: ControlPlane, triton: Triton
) -> None:
    start(api, triton, ONE_GPU)
    now = ready(api, "GPUNotUsed")
    assert now["status"] == "True"
    has = "the server detection-abc-1 has 1 nvidia.com/gpu by the limits, but Triton sees no GPU that it can use"
    assert f"net answers; {has}, and runs net on the CPU" in now["message"]
    eventually(
        lambda: series(operator, api) == [f'{METRIC}{{namespace="{api.namespace}",tritonmodel="detection"}} 1.0'],
        SOON, lambda: series(operator, api),
    )  # fmt: skip
    eventually(lambda: "GPUNotUsed" in events(api), SOON, lambda: events(api))
    text = subprocess.run(
        [Path(sys.executable).parent / "kubectl-triton", "status", gen.NAME, f"--namespace={api.namespace}"],
        env={**os.environ, "KUBECONFIG": str(control_plane.kubeconfig)}, capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    assert "GPUNotUsed" in text

    polls = triton.requests["/v2/repository/index"]
    add_pod(api, gen.not_ready, gen.put("status.podIP", triton.host))
    eventually(lambda: triton.requests["/v2/repository/index"] > polls, SOON, lambda: triton.requests)
    assert triton.requests["/v2/models/net/config"] == 1, "asked again although the server didn't restart"

    triton.kind = "KIND_GPU"
    start(api, triton, ONE_GPU, restarts=1)
    ready(api, "EntrypointAnswers")
    assert triton.requests["/v2/models/net/config"] == 2
    eventually(lambda: not series(operator, api), SOON, lambda: series(operator, api))


CASES: dict[str, tuple[dict[str, str], bool, str]] = {
    "no GPU in the limits": ({}, True, "KIND_CPU"),
    "GPUs that CUDA doesn't see": ({"amd.com/gpu": "1"}, True, "KIND_CPU"),
    "KIND_CPU in config.pbtxt": (ONE_GPU, False, "KIND_CPU"),
    "Triton uses the GPU": (ONE_GPU, True, "KIND_GPU"),
    "the server doesn't say it": (ONE_GPU, True, ""),
}


@pytest.mark.parametrize(("limits", "on_gpu", "kind"), CASES.values(), ids=CASES.keys())
def test_says_nothing_without_proof(
    api: Api, operator: Operator, triton: Triton, limits: dict[str, str], on_gpu: bool, kind: str
) -> None:
    triton.kind = kind
    start(api, triton, limits, on_gpu=on_gpu)
    # The same answer of the prober says that the models are loaded, and where they run.
    loaded = lambda: condition(model(api), "ModelsLoaded").get("reason") == "AllLoaded"  # noqa: E731
    eventually(loaded, SOON, lambda: model(api).get("status"))
    assert condition(model(api), "Ready")["reason"] == "EntrypointAnswers"
    assert not series(operator, api)
