"""The operator's HTTP server."""

from __future__ import annotations

import asyncio
import http.client

from prometheus_client import CollectorRegistry, Gauge

from support import ports
from triton_operator.runtime import health


def ask(*paths: str, wrong: str = "") -> list[tuple[int, str, str]]:
    """(status, text, header Connection) of each path, asked by a client that would keep its connection."""
    registry = CollectorRegistry()
    Gauge("of_the_test", "A gauge.", registry=registry).set(7)
    [port] = ports.free()

    def get(path: str) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path, headers={"Connection": "keep-alive"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers.get("Connection", "")

    async def run() -> list[tuple[int, str, str]]:
        server = await health.serve(port, lambda: "", lambda: wrong, registry)
        try:
            return [await asyncio.to_thread(get, path) for path in paths]
        finally:
            await server.cleanup()

    return asyncio.run(run())


def test_what_is_wrong_is_said_in_words() -> None:
    healthy, ready = ask("/healthz", "/readyz", wrong="the watches have not started")
    assert healthy[:2] == (200, "ok")
    assert ready[:2] == (503, "the watches have not started")


def test_metrics() -> None:
    ((status, text, _),) = ask("/metrics")
    assert status == 200
    assert "of_the_test 7.0" in text


def test_no_connection_is_kept_open() -> None:
    """Each would be a task, for which kopf waits 5 s at its end: of a hand-over, or when the kinds change."""
    assert {connection for _, _, connection in ask("/healthz", "/readyz", "/metrics", wrong="x")} == {"close"}
