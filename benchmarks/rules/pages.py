"""Serves the metrics of many servers and of both replicas of the operator. Runs as a separate process."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from support import gen
from triton_operator.runtime.metrics import Gauges, Metrics, gauges_of

_RECORDED = Path(__file__).parents[2] / "tests" / "rules" / "data" / "triton_24.10.txt"
ENTRY = "yolov5s"
REQUESTS_PER_SECOND = 20
"""Of each server."""


def model(number: int) -> dict[str, object]:
    """Returns the TritonModel `number` as the API server stores it."""
    annotations = {"tritonoperator.io/max-qps": "100", "tritonoperator.io/max-qps-per-replica": "40"}
    return gen.raw(
        gen.put("metadata.annotations", annotations),
        gen.put("metadata.creationTimestamp", "2026-01-01T00:00:00Z"),
        name=f"model-{number}",
        namespace=f"team-{number % 50}",
        uid=f"uid-{number}",
        entrypoint=ENTRY,
        autoscaling={"max": 8},
    )


def server_page() -> list[str]:
    """Returns the page of a server with one model, split where a counter's value belongs."""
    lines = _RECORDED.read_text().splitlines()
    other = re.compile(rf'model="(?!{ENTRY}")')
    text = "\n".join(line for line in lines if not other.search(line)) + "\n"
    # Durations grow like requests: one µs for each. Failures and gauges stay as recorded, so no alert is active.
    counter = r"(?m)(^nv_inference_(?:request_success|count|exec_count|request_duration_us|queue_duration_us).*} )\d+$"
    pieces = re.sub(counter, "\\1\0", text).split("\0")
    assert len(pieces) == 6
    return pieces


def operator_page(size: int) -> bytes:
    """Returns the operator's page about the first `size` TritonModels."""
    metrics, entries = Metrics(CollectorRegistry()), list[tuple[str, Gauges]]()
    for number in range(size):
        raw = model(number)
        metadata = raw["metadata"]
        assert isinstance(metadata, dict)
        entries.append((f"{metadata['namespace']}/{metadata['name']}", gauges_of(raw)))
    replicas, ready = {model_facts.uid: 3 for _, model_facts in entries}, {key: 3 for key, _ in entries}
    metrics.count_models(lambda: entries, lambda: replicas, lambda: ready)
    return generate_latest(metrics.registry)


def main(size: str, port: str) -> int:
    """Serves /server, the same page for every server, and /operator on all addresses of the loopback network."""
    pieces, operator, began = server_page(), operator_page(int(size)), time.time()

    async def of_server(_: web.Request) -> web.Response:
        count = str(int((time.time() - began) * REQUESTS_PER_SECOND) + 1000)
        return web.Response(text=count.join(pieces), content_type="text/plain")

    async def of_operator(_: web.Request) -> web.Response:
        return web.Response(body=operator, content_type="text/plain")

    app = web.Application()
    app.router.add_get("/operator", of_operator)
    app.router.add_get("/server", of_server)
    web.run_app(app, host="0.0.0.0", port=int(port), print=None, access_log=None)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
