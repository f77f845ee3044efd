"""The comparison of answers: two real Tritons, one of which is the canary."""

from __future__ import annotations

import asyncio
import json
import re
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
import tritonclient.http
from aiohttp import web

from answer_comparison.comparer import Comparer
from model_images.support import Server, serving

pytestmark = pytest.mark.server

CODE = """
import json, random
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        {change}
        text = json.dumps({{"boxes": [float(value) for value in x], "label": label}})
        return pb_utils.InferenceResponse([
            pb_utils.Tensor("Y", x.astype(np.float32)),
            pb_utils.Tensor("COUNT", np.array([count], np.int64)),
            pb_utils.Tensor("TEXT", np.array([text.encode()], np.object_)),
        ])
"""
CONFIG = """
name: "%s"
backend: "python"
max_batch_size: 0
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [
  { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] },
  { name: "COUNT" data_type: TYPE_INT64 dims: [ 1 ] },
  { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] }
]
"""
SAME = "count, label = len(x), 'cat'"
CHANGES = {
    "same": (SAME, SAME),
    "near": (SAME, f"{SAME}; x = x * 1.001"),
    "far": (SAME, f"{SAME}; x = x * 1.1"),
    "counts": (SAME, "count, label = len(x) + 1, 'cat'"),
    "text": (SAME, "count, label = len(x), 'dog'"),
    "random": (f"{SAME}; x = x * random.random()", SAME),
    "refuses": (SAME, "raise ValueError('no')"),
    "refused": ("raise ValueError('no')", SAME),
}
"""Model → what it does, at the other servers and at the canary."""
DIFFERENT = {"far": ["TEXT", "Y"], "counts": ["COUNT"], "text": ["TEXT"]}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Serves the models twice: as the other servers do, and as the canary does."""
    root = tmp_path_factory.mktemp("answers")
    root.chmod(0o755)
    root.parent.chmod(0o755)
    for k, place in enumerate(("others", "canary")):
        for name, changes in CHANGES.items():
            folder = root / place / name
            (folder / "1").mkdir(parents=True)
            (folder / "config.pbtxt").write_text(CONFIG % name)
            (folder / "1" / "model.py").write_text(CODE.format(change=changes[k]))
    with serving(root / "others") as others, serving(root / "canary") as canary:
        yield [others, canary]


class Sidecar:
    """A comparer that runs in a thread. `url`: where copies of requests go."""

    def __init__(self, own: str, others: str, pause: float = 0.0) -> None:
        self.comparer = Comparer(f"http://{own}", f"http://{others}", pause)
        self.loop, self.url = asyncio.new_event_loop(), ""
        self.started = threading.Event()
        threading.Thread(target=self.loop.run_until_complete, args=[self.serve()], daemon=True).start()
        assert self.started.wait(10)

    async def serve(self) -> None:
        self.end = asyncio.Event()
        runner = web.AppRunner(self.comparer.app(), access_log=None, auto_decompress=False)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"127.0.0.1:{runner.addresses[0][1]}"
        self.started.set()
        await self.end.wait()
        await runner.cleanup()

    def counts(self) -> dict[str, float]:
        """Returns what was counted, by the label."""
        page = urlopen(f"http://{self.url}/metrics").read().decode()
        return {found[1]: float(found[2]) for found in re.finditer(r'_total\{\w+="([^"]*)"\} (\S+)', page)}

    def after(self, send: Any) -> dict[str, float]:
        """Sends one request, and returns what has been counted because of it."""
        before = self.counts()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            # It takes one at a time, and answers at once.
            send()
            time.sleep(0.05)
            now = self.counts()
            if found := {key: now[key] - before.get(key, 0) for key in now if now[key] != before.get(key, 0)}:
                return found
        raise AssertionError("nothing was counted")


@pytest.fixture
def sidecar(servers: list[Server]) -> Iterator[Sidecar]:
    others, canary = servers
    running = Sidecar(canary.http, others.http)
    yield running
    running.loop.call_soon_threadsafe(running.end.set)


def post(url: str, path: str, body: bytes, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with urlopen(Request(f"http://{url}{path}", body, named)) as answer:
        return int(answer.status)


def send(url: str, model: str, *, binary: bool, values: list[float] | None = None) -> None:
    """Sends a request with Triton's own client."""
    data = np.array(values or [0.5, 1.0, 200.0], np.float32)
    tensor = tritonclient.http.InferInput("X", data.shape, "FP32")
    tensor.set_data_from_numpy(data, binary_data=binary)
    wanted = [tritonclient.http.InferRequestedOutput(name, binary_data=binary) for name in ("Y", "COUNT", "TEXT")]
    body, length = tritonclient.http.InferenceServerClient.generate_request_body([tensor], wanted)
    more = {"Inference_Header_Content_Length": str(length)} if length is not None else {}
    assert post(url, f"/v2/models/{model}/infer", body, **more) == 204


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "JSON"])
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("same", {"exact": 1}),
        ("near", {"close": 1}),
        *((model, {"different": 1, **dict.fromkeys(outputs, 1)}) for model, outputs in DIFFERENT.items()),
        ("random", {"varying": 1}),
        ("refuses", {"different": 1, "an error instead of an answer": 1}),
        ("refused", {"HTTP status 500 of the other servers": 1}),
    ],
)
def test_counts_what_the_answers_have_in_common(
    sidecar: Sidecar, model: str, expected: dict[str, int], binary: bool
) -> None:
    sent = []

    def once() -> None:
        if not sent:
            send(sidecar.url, model, binary=binary)
        sent.append(model)

    assert sidecar.after(once) == expected


def test_a_raw_body_and_generate_are_compared_too(sidecar: Sidecar) -> None:
    raw = struct.pack("<3f", 0.5, 1.0, 200.0)
    headers = {"Inference_Header_Content_Length": "0", "Content_Type": "application/octet-stream"}
    assert "exact" in sidecar.after(lambda: post(sidecar.url, "/v2/models/same/infer", raw, **headers))
    body = json.dumps({"X": [1.0, 2.0]}).encode()
    found = sidecar.after(lambda: post(sidecar.url, "/v2/models/far/versions/1/generate", body))
    assert {"different", "TEXT", "Y"} <= found.keys()


def test_leaves_out_what_only_one_server_can_answer(sidecar: Sidecar) -> None:
    body = json.dumps({"parameters": {"sequence_id": 7}, "inputs": []}).encode()
    found = sidecar.after(lambda: post(sidecar.url, "/v2/models/same/infer", body))
    assert found.keys() == {"a request is of a sequence or has shared memory"}


def test_sends_nothing_but_inference(sidecar: Sidecar) -> None:
    for path in ("/v2/repository/models/same/unload", "/v2/models/same/trace/setting", "/v2/models/a/generate_stream"):
        assert post(sidecar.url, path, b"{}") == 204
    assert sidecar.counts() == {}


def test_says_which_servers_do_not_answer(servers: list[Server]) -> None:
    for own, others, words in (
        ("127.0.0.1:1", servers[0].http, "no connection to the canary's server: ClientConnectorError"),
        (servers[1].http, "127.0.0.1:1", "no connection to the other servers: ClientConnectorError"),
        (servers[1].http, "no-such-name.invalid:1", "the name of the other servers can't be resolved"),
    ):
        sidecar = Sidecar(own, others)
        (found,) = sidecar.after(lambda: send(sidecar.url, "same", binary=True))  # noqa: B023
        assert found.startswith(words)
        sidecar.loop.call_soon_threadsafe(sidecar.end.set)


def test_takes_a_request_a_second_at_most(servers: list[Server]) -> None:
    sidecar = Sidecar(servers[1].http, servers[0].http, pause=1.0)
    began, sent = time.monotonic(), 0
    while time.monotonic() < began + 3.5:
        send(sidecar.url, "same", binary=True)
        sent += 1
    assert 2 <= sidecar.counts()["exact"] <= 4 < sent
    sidecar.loop.call_soon_threadsafe(sidecar.end.set)
